//! Installing and uninstalling: a plan, and carrying it out.

mod install;
mod observed;
mod replaced;
mod sources;
mod step;
mod uninstall;

use fs_err as fs;

use crate::checkpoint::Checkpoints;
use crate::error::ServiceError;
use crate::manager::Manager;
use crate::places::{KERNELS, PROGRAMS, Places};
use crate::{Record, Start};

pub use install::plan as install_plan;
pub use observed::Observed;
pub use replaced::left;
pub use sources::{Source, sources};
pub use step::Step;
pub use uninstall::{Extent, Kept, kept, plan as uninstall_plan};

/// What is wanted.
#[derive(Debug, Clone)]
pub struct Installation {
    /// Where it goes.
    pub places: Places,
    /// When the daemon starts.
    pub start: Start,
    /// The programs, and what belongs to them.
    pub sources: Vec<Source>,
}

/// Held by the one run that changes an installation.
#[derive(Debug)]
pub struct Exclusive {
    _directory: Option<fs::File>,
}

/// Keeps other runs away, as long as what this returns lives. Where nothing was ever installed there is nothing to hold.
///
/// # Errors
/// [`ServiceError::Busy`], and [`ServiceError::Io`].
pub fn exclusive(places: &Places) -> Result<Exclusive, ServiceError> {
    if !places.own.exists() {
        return Ok(Exclusive { _directory: None });
    }
    let directory = fs::File::open(&places.own)?;
    match directory.file().try_lock() {
        Ok(()) => Ok(Exclusive { _directory: Some(directory) }),
        Err(std::fs::TryLockError::WouldBlock) => Err(ServiceError::Busy),
        Err(std::fs::TryLockError::Error(error)) => Err(error.into()),
    }
}

/// Carries out `steps`, and tells each to `begun` before it begins.
///
/// # Errors
/// Every [`ServiceError`]: the steps before it are done, and the next run goes on from there.
pub fn perform(
    steps: &[Step],
    manager: &Manager,
    checkpoints: &Checkpoints,
    mut begun: impl FnMut(&Step),
) -> Result<(), ServiceError> {
    for step in steps {
        checkpoints.pass();
        begun(step);
        step.perform(manager, checkpoints)?;
    }
    checkpoints.pass();
    Ok(())
}

/// Whether the manager has something of ours to look after: a definition is there.
pub fn is_installed(places: &Places, manager: &Manager) -> bool {
    crate::places::definition_names(manager.kind()).iter().any(|name| places.definitions.join(name).exists())
}

/// The places that an earlier installation chose, where there is one.
///
/// # Errors
/// [`ServiceError::Record`].
pub fn recorded(places: Places) -> Result<(Places, Option<Record>), ServiceError> {
    let Some(record) = Record::read(&places.record())? else { return Ok((places, None)) };
    let socket = fusion_proto::endpoint::SocketPath::new(&record.socket).unwrap_or(places.socket);
    let chosen = Places {
        programs: record.programs.clone(),
        state: record.state.clone(),
        configuration: record.configuration.clone(),
        definitions: record.definitions.clone().unwrap_or(places.definitions),
        socket,
        ..places
    };
    Ok((chosen, Some(record)))
}

/// The names under which an installation's own programs lie.
fn program_names() -> impl Iterator<Item = &'static str> {
    PROGRAMS.into_iter().chain([KERNELS])
}
