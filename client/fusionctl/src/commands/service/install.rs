//! `fusionctl install`.

use std::env;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf, absolute};

use fusion_client::state::{CONFIGURATION_VARIABLE, STATE_VARIABLE};
use fusion_client::{SocketPath, VERSION};
use fusion_service::installation::{
    self, Installation, Kept, Observed, Step, exclusive, install_plan, left, sources,
};
use fusion_service::places::Places;
use fusion_service::{Checkpoints, Record, Start};

use super::lifecycle::first_answer;
use super::{tell, usual};
use crate::arguments::Install;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json::service::Installed;
use crate::json::status::Started;
use crate::json::{self, Schema};
use crate::output::Output;

pub(in super::super) async fn run(
    command: &Install,
    socket: SocketPath,
    output: Output,
) -> Result<(), Failure> {
    let (places, manager) = usual(socket)?;
    let alone = exclusive(&places)?;
    let record = Record::read(&places.record()).map_err(fusion_service::ServiceError::from)?;
    let places = chosen(places, command, record.as_ref())?;
    let start = match command.start().or(record.as_ref().map(|record| record.start)) {
        Some(start) => start,
        None => asked()?,
    };
    let from = command.from.clone().map_or_else(own_directory, Ok)?;
    let sources = sources(&full(&from)?, &places)?;
    let wanted = Installation { places, start, sources };
    let observed = Observed::look(&wanted.places, &manager)?;
    let steps = install_plan(&wanted, manager.kind(), &observed)?;
    let kept = left(&wanted.places, record.as_ref());
    let mut answer = None;
    if !command.dry_run {
        installation::perform(&steps, &manager, &Checkpoints::from_environment(), |step| tell(step, output))?;
        drop(alone);
        if start == Start::AtLogin && !command.no_wait {
            answer = Some(first_answer(&wanted.places.socket, output).await);
        }
    }
    let daemon = answer.as_ref().and_then(|answer| answer.as_ref().ok());
    if output.json {
        let installed = Installed::new(&wanted, manager.kind(), &steps, &kept, daemon, command.dry_run);
        output.print(&json::document(Schema::Install, &installed)?)?;
    } else {
        output.print(&told(&wanted, &steps, &kept, daemon, command.dry_run))?;
    }
    answer.map_or(Ok(()), |answer| answer.map(drop))
}

/// Where it goes. What isn't named stays as an earlier installation has it.
fn chosen(usual: Places, command: &Install, record: Option<&Record>) -> Result<Places, Failure> {
    let mut places = usual;
    let named = |variable| env::var_os(variable).is_some_and(|value| !value.is_empty());
    if let Some(record) = record {
        places.programs.clone_from(&record.programs);
        if !named(STATE_VARIABLE) {
            places.state.clone_from(&record.state);
        }
        if !named(STATE_VARIABLE) && !named(CONFIGURATION_VARIABLE) {
            places.configuration.clone_from(&record.configuration);
        }
    }
    if let Some(directory) = &command.bin_dir {
        places.programs = full(directory)?;
    }
    Ok(places)
}

fn told(
    wanted: &Installation,
    steps: &[Step],
    kept: &[Kept],
    daemon: Option<&Started>,
    dry_run: bool,
) -> String {
    let mut lines = if dry_run { would(steps) } else { done(wanted, steps, daemon) };
    lines.extend(kept.iter().map(|kept| format!("kept {} ({})", kept.path.display(), kept.why)));
    lines.join("\n")
}

fn would(steps: &[Step]) -> Vec<String> {
    if steps.is_empty() {
        return vec!["nothing would be done: all is in place".to_owned()];
    }
    steps.iter().map(|step| format!("would {step}")).collect()
}

fn done(wanted: &Installation, steps: &[Step], daemon: Option<&Started>) -> Vec<String> {
    let programs = wanted.places.programs.display();
    let already = if steps.is_empty() { " already" } else { "" };
    let start = wanted.start;
    let mut lines = vec![format!(
        "fusiond {VERSION} is installed{already}: it starts {start} and is run from {programs}"
    )];
    lines.extend(daemon.map(|daemon| format!("fusiond {} (process {}) runs", daemon.version, daemon.pid)));
    if !in_path(&wanted.places.programs) {
        lines.push(format!("to have fusionctl everywhere, add it to PATH: export PATH=\"{programs}:$PATH\""));
    }
    let shared = wanted.places.shared();
    let documents = |step: &Step| matches!(step, Step::PlaceProgram { to, .. } if to.starts_with(&shared));
    if steps.iter().any(documents) {
        let shell = env::var("SHELL").unwrap_or_default();
        lines.extend(completing(Path::new(&shell), &shared));
    }
    lines
}

/// How a shell is told of the completions below `shared`: none looks there by itself. The manual is found through PATH.
fn completing(shell: &Path, shared: &Path) -> Option<String> {
    let shared = shared.display();
    let (file, line) = match shell.file_name()?.to_str()? {
        "bash" => ("~/.bashrc", format!(". \"{shared}/bash-completion/completions/fusionctl\"")),
        "zsh" => ("~/.zshrc, before compinit", format!("fpath+=(\"{shared}/zsh/site-functions\")")),
        "fish" => (
            "~/.config/fish/config.fish",
            format!("set -a fish_complete_path \"{shared}/fish/vendor_completions.d\""),
        ),
        _ => return None,
    };
    Some(format!("to have it completed, add to {file}: {line}"))
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

/// The full path of a directory; of one that is there, without ".." and links.
fn full(path: &Path) -> Result<PathBuf, Failure> {
    path.canonicalize()
        .or_else(|_| absolute(path))
        .map_err(|error| Failure::Usage(format!("'{}' is no path: {error}", path.display())))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_is_told_in_its_own_words() {
        let told = |shell: &str| completing(Path::new(shell), Path::new("/home/ada/.fusion/share"));
        for (shell, words) in [
            ("/bin/bash", ". \"/home/ada/.fusion/share/bash-completion/completions/fusionctl\""),
            ("/usr/bin/zsh", "fpath+=(\"/home/ada/.fusion/share/zsh/site-functions\")"),
            ("/opt/homebrew/bin/fish", "\"/home/ada/.fusion/share/fish/vendor_completions.d\""),
        ] {
            assert!(told(shell).unwrap().contains(words), "{shell}");
        }
        assert_eq!((told("/bin/sh"), told("")), (None, None));
    }
}
