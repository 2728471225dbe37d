//! `--dry-run` of `fusionctl start`, `stop` and `restart`: looks, and changes nothing.

use fusion_client::failures::{FailedStarts, MOST_FAILED_STARTS};
use fusion_service::installation::{Observed, Step};
use fusion_service::manager::ManagerState;

use super::Service;
use crate::failure::Failure;
use crate::json::service::Rehearsed;
use crate::json::{self, Schema};
use crate::output::Output;

/// Prints what would be done.
pub(super) fn told(steps: Vec<String>, output: Output) -> Result<(), Failure> {
    if output.json {
        return output.print(&json::document(Schema::DryRun, &Rehearsed { steps })?);
    }
    if steps.is_empty() {
        return output.print("nothing would be done");
    }
    output.print(&steps.iter().map(|step| format!("would {step}")).collect::<Vec<_>>().join("\n"))
}

impl Service {
    pub(super) fn would_start(&self) -> Result<Vec<String>, Failure> {
        let failed = FailedStarts::read(&self.places.socket);
        let gave_up = failed.as_ref().is_some_and(|failed| failed.count >= MOST_FAILED_STARTS);
        let runs = matches!(self.manager.state()?, ManagerState::Running { .. });
        let mut steps = if gave_up { self.would_stop()? } else { Vec::new() };
        steps.extend(failed.map(|failed| format!("forget its {} failed starts", failed.count)));
        if gave_up || !runs {
            steps.push(self.starts()?);
        }
        Ok(steps)
    }

    pub(super) fn would_restart(&self) -> Result<Vec<String>, Failure> {
        let mut steps = self.would_stop()?;
        steps.push(self.starts()?);
        Ok(steps)
    }

    pub(super) fn would_stop(&self) -> Result<Vec<String>, Failure> {
        let observed = Observed::look(&self.places, &self.manager)?;
        let kind = self.kind();
        let held = observed.manager != ManagerState::NotLoaded;
        let stop =
            held.then(|| format!("stop {} through {kind}, which lets go of its socket", kind.service()));
        let end = observed.daemon_of_a_terminal();
        let end = end.then(|| Step::EndDaemon(self.places.socket.clone()).to_string());
        Ok(stop.into_iter().chain(end).collect())
    }

    fn starts(&self) -> Result<String, Failure> {
        let definitions = self.definitions()?;
        Ok(Step::Start { manager: self.kind(), definitions }.to_string())
    }
}
