//! `fusionctl install`.

use std::env;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf, absolute};

use fusion_client::{SocketPath, VERSION};
use fusion_service::installation::{self, Installation, Observed, Step, exclusive, install_plan, sources};
use fusion_service::{Checkpoints, Record, Start};

use super::{tell, usual};
use crate::arguments::Install;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json::service::Installed;
use crate::json::{self, Schema};
use crate::output::Output;

pub(in super::super) fn run(command: &Install, socket: SocketPath, output: Output) -> Result<(), Failure> {
    let (mut places, manager) = usual(socket)?;
    let _alone = exclusive(&places)?;
    let record = Record::read(&places.record()).map_err(fusion_service::ServiceError::from)?;
    if let Some(programs) = record.as_ref().map(|record| &record.programs) {
        places.programs.clone_from(programs);
    }
    if let Some(directory) = &command.bin_dir {
        places.programs = full(directory)?;
    }
    let start = match command.start().or(record.map(|record| record.start)) {
        Some(start) => start,
        None => asked()?,
    };
    let from = command.from.clone().map_or_else(own_directory, Ok)?;
    let sources = sources(&full(&from)?)?;
    let wanted = Installation { places, start, sources };
    let observed = Observed::look(&wanted.places, &manager)?;
    let steps = install_plan(&wanted, manager.kind(), &observed)?;
    if !command.dry_run {
        installation::perform(&steps, &manager, &Checkpoints::from_environment(), |step| tell(step, output))?;
    }
    if output.json {
        let installed = Installed::new(&wanted, manager.kind(), &steps, command.dry_run);
        return output.print(&json::document(Schema::Install, &installed)?);
    }
    output.print(&told(&wanted, &steps, command.dry_run))
}

fn told(wanted: &Installation, steps: &[Step], dry_run: bool) -> String {
    let programs = wanted.places.programs.display();
    if dry_run {
        let list: Vec<_> = steps.iter().map(|step| format!("would {step}")).collect();
        return if list.is_empty() {
            "nothing would be done: all is in place".to_owned()
        } else {
            list.join("\n")
        };
    }
    let already = if steps.is_empty() { " already" } else { "" };
    let mut text = format!(
        "fusiond {VERSION} is installed{already}: it starts {} and is run from {programs}",
        wanted.start
    );
    if !in_path(&wanted.places.programs) {
        text += &format!("\nto have fusionctl everywhere, add it to PATH: export PATH=\"{programs}:$PATH\"");
    }
    text
}

fn in_path(directory: &Path) -> bool {
    env::split_paths(&env::var_os("PATH").unwrap_or_default()).any(|entry| entry == directory)
}

/// Where this program lies, and the others beside it. The kernel's word for it: a link in PATH isn't where they lie.
fn own_directory() -> Result<PathBuf, Failure> {
    let own = env::current_exe().ok().and_then(|own| own.parent().map(Path::to_owned));
    own.ok_or_else(|| {
        Failure::ended(Exit::Internal, "this system doesn't tell where fusionctl lies: give --from")
    })
}

fn full(path: &Path) -> Result<PathBuf, Failure> {
    absolute(path).map_err(|error| Failure::Usage(format!("'{}' is no path: {error}", path.display())))
}

/// Asks when the daemon shall start.
fn asked() -> Result<Start, Failure> {
    if !io::stdin().is_terminal() {
        let message = "say when fusiond shall start: --at-login, to measure while nobody asks, or --on-demand, with the first client; there is no terminal to ask on";
        return Err(Failure::Usage(message.to_owned()));
    }
    let mut stderr = io::stderr();
    write!(
        stderr,
        "When shall fusiond start?\n  1  at login: it measures while nobody asks, within its budget\n  2  on demand: with the first client, nothing runs before\n[1] "
    )?;
    stderr.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    match answer.trim() {
        "" | "1" => Ok(Start::AtLogin),
        "2" => Ok(Start::OnDemand),
        other => Err(Failure::Usage(format!("'{other}' is neither 1 nor 2; nothing was changed"))),
    }
}
