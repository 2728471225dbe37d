//! Running other programs: quiet when they succeed, their own words when they fail.

use std::process::Command;

use anyhow::{Context, Result, bail};

/// Lines of a failed program's output worth showing; compilers put the cause first, pip last.
const SHOWN_LINES: usize = 30;

/// Runs `command` to its end and returns its stdout.
///
/// # Errors
/// If it cannot be started, or fails: then with `what` and the ends of its output.
pub(crate) fn capture(command: &mut Command, what: &str) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("{what}: cannot start {program}"))?;
    if !output.status.success() {
        let said = [output.stderr.as_slice(), output.stdout.as_slice()].concat();
        bail!("{what} failed: {program}, {}\n{}", output.status, shorten(&String::from_utf8_lossy(&said)));
    }
    String::from_utf8(output.stdout).with_context(|| format!("{what}: {program} did not print UTF-8"))
}

/// Runs `command` with our terminal as its own.
///
/// # Errors
/// If it cannot be started or fails.
pub(crate) fn show(command: &mut Command, what: &str) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("{what}: cannot start {program}"))?;
    if !status.success() {
        bail!("{what} failed ({status}); its messages are above");
    }
    Ok(())
}

fn shorten(text: &str) -> String {
    let lines: Vec<&str> = text.trim().lines().collect();
    if lines.len() <= SHOWN_LINES {
        return lines.join("\n");
    }
    let (head, tail) = (&lines[..SHOWN_LINES / 2], &lines[lines.len() - SHOWN_LINES / 2..]);
    let left_out = lines.len() - head.len() - tail.len();
    format!("{}\n... {left_out} lines left out ...\n{}", head.join("\n"), tail.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_output_keeps_both_ends() {
        let text: String = (0..100).map(|n| format!("line {n}\n")).collect();
        let short = shorten(&text);
        assert!(short.starts_with("line 0\n") && short.ends_with("line 99"));
        assert!(short.contains("70 lines left out"));
        assert_eq!(shorten("one\ntwo\n"), "one\ntwo");
    }

    #[test]
    fn a_failure_carries_the_programs_words() {
        let error = capture(Command::new("sh").args(["-c", "echo no such thing >&2; exit 3"]), "looking")
            .unwrap_err();
        let text = error.to_string();
        assert!(text.contains("looking failed") && text.contains("no such thing"), "{text}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = capture(&mut Command::new("no-such-program-anywhere"), "looking").unwrap_err();
        assert!(format!("{error:#}").contains("no-such-program-anywhere"));
    }
}
