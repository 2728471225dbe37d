//! `fusionctl doctor`.

use std::path::Path;

use fusion_client::{Client, SocketPath};

use crate::arguments::Doctor;
use crate::doctor::facts::{Facts, SelfTested};
use crate::doctor::privacy::Person;
use crate::doctor::{Check, Outcome, checks, gather, self_test, worst};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json::{self, Schema};
use crate::output::Output;
use crate::render;
use crate::render::doctor::Progress;

pub(super) async fn run(command: &Doctor, socket: &SocketPath, output: Output) -> Result<(), Failure> {
    let facts = look(command, socket, output).await;
    let checks = checks::examine(&facts);
    if let Some(path) = &command.report {
        write_report(path, &document(&private(&checks), &facts)?, output)?;
    }
    if output.json {
        output.print(&document(&checks, &facts)?)?;
    } else {
        output.print(&render::doctor::checks(&checks, output))?;
    }
    verdict(&checks)
}

fn document(checks: &[Check], facts: &Facts) -> Result<String, Failure> {
    json::document(Schema::Doctor, &json::doctor::Doctor::new(checks, &facts.self_test))
}

/// The checks without anything that tells whose machine it is. What was found is the only part that isn't our own words.
fn private(checks: &[Check]) -> Vec<Check> {
    let person = Person::of_environment();
    checks.iter().map(|check| Check { found: person.scrub(&check.found), ..check.clone() }).collect()
}

async fn look(command: &Doctor, socket: &SocketPath, output: Output) -> Facts {
    let (client, status) = match Client::connect(socket).await {
        Ok(client) => {
            let status = client.status().await.map_err(|error| error.to_string());
            (Some(client), status)
        }
        Err(error) => (None, Err(error.to_string())),
    };
    let facts = gather::facts(socket, status).await;
    let self_test = match client {
        _ if command.no_self_test => SelfTested::Unwanted,
        None => SelfTested::Not { why: "there is no daemon to compare with".to_owned() },
        Some(client) => {
            let progress = Progress::new(output);
            match self_test::run(&client, |done, of| progress.show(done, of)).await {
                Ok(comparison) => SelfTested::Done(comparison),
                Err(error) => SelfTested::Not { why: error.to_string() },
            }
        }
    };
    Facts { self_test, ..facts }
}

fn write_report(path: &Path, document: &str, output: Output) -> Result<(), Failure> {
    std::fs::write(path, document)
        .map_err(|error| Failure::ended(Exit::Io, format!("cannot write '{}': {error}", path.display())))?;
    output.tell(&format!("the report is in {}; read it before you send it", path.display()));
    Ok(())
}

fn verdict(checks: &[Check]) -> Result<(), Failure> {
    match checks.iter().filter(|check| check.outcome == Outcome::Fail).count() {
        0 => Ok(()),
        failed => {
            debug_assert_eq!(worst(checks), Outcome::Fail);
            let message =
                format!("{} failed: the remedy is beside each", render::words::count(failed, "check"));
            Err(Failure::ended(Exit::Negative, message))
        }
    }
}
