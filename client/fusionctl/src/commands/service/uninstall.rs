//! `fusionctl uninstall`.

use std::path::PathBuf;

use fusion_client::SocketPath;
use fusion_service::installation::{
    self, Extent, Kept, Observed, Step, exclusive, kept, recorded, uninstall_plan,
};
use fusion_service::places::Places;
use fusion_service::{Checkpoints, Record};

use super::{tell, usual};
use crate::arguments::Uninstall;
use crate::commands::confirm;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json::service::Uninstalled;
use crate::json::{self, Schema};
use crate::output::Output;

pub(in super::super) fn run(command: &Uninstall, socket: SocketPath, output: Output) -> Result<(), Failure> {
    let (places, manager) = usual(socket)?;
    let alone = exclusive(&places)?;
    let (places, record) = recorded(places)?;
    let extent = if command.purge { Extent::Everything } else { Extent::Program };
    let observed = Observed::look(&places, &manager)?;
    let steps = uninstall_plan(&places, manager.kind(), extent, &observed);
    let states = states(&places, record.as_ref());
    if let Some(home) = states.iter().find(|state| command.purge && places.own.starts_with(state)) {
        let home = home.display();
        let message =
            format!("the state directory {home} holds your home: remove what is the daemon's in it by hand");
        return Err(Failure::ended(Exit::Config, message));
    }
    if command.purge && !command.yes && !command.dry_run && !states.is_empty() {
        confirm::possible("purging removes what was measured")?;
        let names: Vec<_> = states.iter().map(|state| state.display().to_string()).collect();
        let question = format!("Remove all calibrations in {} for good?", names.join(" and "));
        if !confirm::asked(&question)? {
            return output.print("nothing was changed");
        }
    }
    if !command.dry_run {
        installation::perform(&steps, &manager, &Checkpoints::from_environment(), |step| tell(step, output))?;
    }
    drop(alone);
    let kept = kept(&places, record.as_ref());
    if output.json {
        let uninstalled = Uninstalled::new(&steps, &kept, command.purge, command.dry_run);
        return output.print(&json::document(Schema::Uninstall, &uninstalled)?);
    }
    output.print(&told(&steps, &kept, command.dry_run))
}

/// The state directories that are there, those of earlier installations included.
fn states(places: &Places, record: Option<&Record>) -> Vec<PathBuf> {
    let earlier = record.map(|record| record.left.as_slice()).unwrap_or_default();
    let all = std::iter::once(&places.state).chain(earlier);
    all.filter(|state| state.exists()).cloned().collect()
}

fn told(steps: &[Step], kept: &[Kept], dry_run: bool) -> String {
    let would = if dry_run { "would " } else { "" };
    let mut lines: Vec<_> = steps.iter().filter(|_| dry_run).map(|step| format!("{would}{step}")).collect();
    match (steps.is_empty(), dry_run) {
        (true, _) => lines.push("nothing to do: fusiond is not installed".to_owned()),
        (false, false) => {
            lines.extend(removed(steps));
            lines.push("fusiond is uninstalled".to_owned());
        }
        (false, true) => {}
    }
    lines.extend(kept.iter().map(|kept| format!("kept {} ({})", kept.path.display(), kept.why)));
    lines.join("\n")
}

fn removed(steps: &[Step]) -> impl Iterator<Item = String> {
    steps.iter().filter_map(|step| match step {
        Step::RemoveFile(path) | Step::RemoveTree(path) => Some(format!("removed {}", path.display())),
        _ => None,
    })
}
