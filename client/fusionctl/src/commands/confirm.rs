//! Asking before something is lost.

use std::io::{self, IsTerminal as _, Write as _};

use crate::failure::Failure;

/// Whether there is somebody to ask; `what` says what would happen.
pub(super) fn possible(what: &str) -> Result<(), Failure> {
    if io::stdin().is_terminal() {
        return Ok(());
    }
    Err(Failure::Usage(format!("{what} and there is no terminal to ask on: add --yes")))
}

/// Asks; anything but a yes is a no.
pub(super) fn asked(question: &str) -> Result<bool, Failure> {
    let mut stderr = io::stderr();
    write!(stderr, "{question} [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
