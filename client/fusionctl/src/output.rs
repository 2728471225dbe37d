//! Where output goes, and how it may look.

use std::env;
use std::io::{self, IsTerminal as _, Write as _};

use comfy_table::Table;

use crate::arguments::{Color, Global};
use crate::failure::Failure;

/// How the output may look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    /// Whether data is JSON instead of text.
    pub(crate) json: bool,
    /// Whether stderr stays empty unless something fails.
    pub(crate) quiet: bool,
    /// Whether escape codes are welcome on stdout.
    pub(crate) color: bool,
    /// Columns to fit into; `None` where nobody minds, as in a pipe.
    pub(crate) width: Option<u16>,
}

impl Output {
    pub(crate) fn new(global: &Global) -> Self {
        let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        let plain = set("NO_COLOR") || env::var_os("TERM").is_some_and(|term| term == "dumb");
        let color = match global.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => io::stdout().is_terminal() && !plain,
        };
        let columns = env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        // comfy-table asks the terminal, if stdout is one.
        Self {
            json: global.json,
            quiet: global.quiet,
            color,
            width: columns.or_else(|| Table::new().width()),
        }
    }

    /// Writes data.
    pub(crate) fn print(&self, text: &str) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        if !text.ends_with('\n') {
            stdout.write_all(b"\n")?;
        }
        Ok(stdout.flush()?)
    }

    /// Tells a person something that is no data.
    pub(crate) fn tell(&self, text: &str) {
        if !self.quiet {
            // Losing a remark is no reason to fail.
            let _ = writeln!(io::stderr(), "{text}");
        }
    }

    pub(crate) fn bold(&self, text: &str) -> String {
        self.paint("1", text)
    }

    pub(crate) fn yellow(&self, text: &str) -> String {
        self.paint("33", text)
    }

    pub(crate) fn red(&self, text: &str) -> String {
        self.paint("31", text)
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// One line on stderr, whatever the message holds.
pub(crate) fn error_line(failure: &Failure) -> io::Result<()> {
    let message = failure.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    writeln!(io::stderr(), "fusionctl: {message}")
}
