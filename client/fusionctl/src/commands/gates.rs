//! `fusionctl gates`.

use fusion_calibrations::gate::Arm;
use fusion_client::{Client, GateScope, KnownGates, SocketPath, WorkloadName};
use jiff::Timestamp;

use super::{confirm, connect};
use crate::arguments::Gates;
use crate::failure::Failure;
use crate::json::{self, Schema};
use crate::output::Output;
use crate::render;
use crate::render::gates::scope_words;
use crate::render::words::{count, plain};

/// Edits, as a share of a name's length, up to which it is suggested.
const SUGGESTION_DISTANCE: f64 = 0.5;
/// Names that are listed where none is near.
const MOST_NAMES: usize = 5;

pub(super) async fn run(command: &Gates, socket: &SocketPath, output: Output) -> Result<(), Failure> {
    match command {
        Gates::List { workload } => list(workload.as_ref(), socket, output).await,
        Gates::Show(calls) => show(&calls.scope(), socket, output).await,
        Gates::Reset { calls, yes } => reset(&calls.scope(), *yes, socket, output).await,
        Gates::Lock { calls, arm } => lock(&calls.scope(), (*arm).into(), socket, output).await,
        Gates::Unlock(calls) => unlock(&calls.scope(), socket, output).await,
    }
}

async fn list(workload: Option<&WorkloadName>, socket: &SocketPath, output: Output) -> Result<(), Failure> {
    let client = connect(socket).await?;
    let known = client.list_gates(workload).await?;
    if let Some(name) = workload {
        must_be_known(name, &known, &client).await?;
    }
    if output.json {
        return output.print(&json::document(Schema::GatesList, &json::gates::List::from(&known))?);
    }
    let chip = client.status().await?.chip;
    output.print(&render::gates::list(&known, chip.as_ref(), output))
}

async fn show(scope: &GateScope, socket: &SocketPath, output: Output) -> Result<(), Failure> {
    let client = connect(socket).await?;
    let mut known = client.list_gates(Some(&scope.workload)).await?;
    must_be_known(&scope.workload, &known, &client).await?;
    let elsewhere = known.regions.len();
    known.regions.retain(|region| scope.holds(region));
    known.locks.retain(|lock| lock.rows.is_none() || scope.rows.is_none() || lock.rows == scope.rows);
    if known.regions.is_empty() && known.locks.is_empty() {
        let message = format!(
            "nothing is known of {}, but of {} with other rows: see 'fusionctl gates list'",
            scope_words(scope),
            count(elsewhere, "region")
        );
        return Err(Failure::Usage(message));
    }
    if output.json {
        return output.print(&json::document(Schema::GatesShow, &json::gates::Show::new(scope, &known))?);
    }
    let chip = client.status().await?.chip;
    let now_ms = Timestamp::now().as_millisecond() as f64;
    output.print(&render::gate_details::show(&known, chip.as_ref(), now_ms, output))
}

async fn reset(scope: &GateScope, yes: bool, socket: &SocketPath, output: Output) -> Result<(), Failure> {
    if !yes {
        confirm::possible("resetting forgets what was learned")?;
    }
    let client = connect(socket).await?;
    if !yes && !confirm::asked(&question(scope, &client).await?)? {
        output.tell("nothing was changed");
        return if output.json { print_reset(scope, None, output) } else { Ok(()) };
    }
    let forgotten = client.reset_gate(scope).await?;
    if output.json {
        return print_reset(scope, Some(forgotten), output);
    }
    output.print(&render::gates::forgotten(scope, forgotten))?;
    if forgotten.regions == 0 {
        remark_if_unknown(&scope.workload, &client, output).await?;
    }
    Ok(())
}

async fn question(scope: &GateScope, client: &Client) -> Result<String, Failure> {
    let known = client.list_gates(Some(&scope.workload)).await?;
    let regions = known.regions.iter().filter(|region| scope.holds(region)).count();
    let clients = client.list_clients().await?.len();
    Ok(format!(
        "Forget what was learned of {} ({}), here and in {}?",
        scope_words(scope),
        count(regions, "region"),
        render::gates::processes(clients)
    ))
}

fn print_reset(
    scope: &GateScope,
    forgotten: Option<fusion_client::Forgotten>,
    output: Output,
) -> Result<(), Failure> {
    let reset = json::gates::Reset::new(scope, forgotten);
    output.print(&json::document(Schema::GatesReset, &reset)?)
}

async fn lock(scope: &GateScope, arm: Arm, socket: &SocketPath, output: Output) -> Result<(), Failure> {
    let client = connect(socket).await?;
    let clients = client.lock_gate(scope, arm).await?;
    if output.json {
        let locked = json::gates::Locked::new(scope, arm, clients);
        return output.print(&json::document(Schema::GatesLock, &locked)?);
    }
    output.print(&render::gates::locked(scope, arm, clients))?;
    remark_if_unknown(&scope.workload, &client, output).await
}

async fn unlock(scope: &GateScope, socket: &SocketPath, output: Output) -> Result<(), Failure> {
    let client = connect(socket).await?;
    let before = client.list_gates(Some(&scope.workload)).await?.locks;
    let clients = client.unlock_gate(scope).await?;
    let (gone, kept): (Vec<_>, Vec<_>) =
        before.into_iter().partition(|lock| scope.rows.is_none() || lock.rows == scope.rows);
    if output.json {
        let unlocked = json::gates::Unlocked::new(scope, &gone, clients);
        return output.print(&json::document(Schema::GatesUnlock, &unlocked)?);
    }
    let still = kept.iter().find(|lock| lock.rows.is_none());
    output.print(&render::gates::unlocked(scope, gone.len(), still, clients))?;
    if gone.is_empty() && still.is_none() {
        remark_if_unknown(&scope.workload, &client, output).await?;
    }
    Ok(())
}

/// Refuses a workload that neither a region nor a lock has.
async fn must_be_known(workload: &WorkloadName, known: &KnownGates, client: &Client) -> Result<(), Failure> {
    if !known.regions.is_empty() || !known.locks.is_empty() {
        return Ok(());
    }
    let all = names(&client.list_gates(None).await?);
    let name = plain(workload.as_str());
    Err(Failure::Usage(format!("no gate knows the workload '{name}'{}", instead(workload, &all))))
}

/// Says that a decision waits for a workload that no process has called yet: a typing mistake looks the same.
async fn remark_if_unknown(workload: &WorkloadName, client: &Client, output: Output) -> Result<(), Failure> {
    let known = client.list_gates(None).await?;
    if known.regions.iter().all(|region| region.state.key.workload != workload.as_str()) {
        let name = plain(workload.as_str());
        let instead = instead(workload, &names(&known));
        output.tell(&format!("no attached process has told of the workload '{name}' yet{instead}"));
    }
    Ok(())
}

/// The workloads that regions and locks name, each once.
fn names(known: &KnownGates) -> Vec<String> {
    let regions = known.regions.iter().map(|region| region.state.key.workload.clone());
    let mut names: Vec<String> =
        regions.chain(known.locks.iter().map(|lock| lock.workload.clone())).collect();
    names.sort();
    names.dedup();
    names
}

/// The nearest name, else some that there are.
fn instead(workload: &WorkloadName, names: &[String]) -> String {
    let wanted = workload.as_str();
    let others = names.iter().filter(|name| *name != wanted);
    let nearest = others
        .clone()
        .map(|name| (strsim::damerau_levenshtein(name, wanted), name))
        .min()
        .filter(|(edits, name)| (*edits as f64) <= SUGGESTION_DISTANCE * name.chars().count() as f64);
    if let Some((_, name)) = nearest {
        return format!("; did you mean '{}'?", plain(name));
    }
    let some: Vec<String> = others.take(MOST_NAMES).map(|name| format!("'{}'", plain(name))).collect();
    if some.is_empty() {
        return ": no workload is known yet".to_owned();
    }
    format!("; there is {}: see 'fusionctl gates list'", some.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested_else_some_that_there_are() {
        let name = |text: &str| text.parse::<WorkloadName>().unwrap();
        let names = ["a block", "a prefill"].map(str::to_owned);
        assert_eq!(instead(&name("a prefil"), &names), "; did you mean 'a prefill'?");
        assert_eq!(
            instead(&name("xyz"), &names),
            "; there is 'a block', 'a prefill': see 'fusionctl gates list'"
        );
        assert_eq!(instead(&name("xyz"), &[]), ": no workload is known yet");
    }
}
