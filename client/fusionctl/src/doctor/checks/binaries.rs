//! Our programs: whether they are there, and whether macOS lets them run.

use crate::doctor::Check;
use crate::doctor::facts::{Facts, Program};
use crate::doctor::transcripts::{Quarantine, Signature, quarantine, signature};

pub(super) fn all(facts: &Facts) -> Vec<Check> {
    let mut checks = vec![programs(&facts.programs)];
    checks.extend(quarantines(&facts.programs));
    checks.extend(signatures(&facts.programs));
    checks
}

fn programs(programs: &[Program]) -> Check {
    let missing = names(programs, |program| program.path.is_none());
    if !missing.is_empty() {
        return Check::fail(
            "programs",
            format!("not found: {missing}"),
            "fusionctl looks beside itself and in PATH; the daemon looks for its worker beside itself",
            "install all three from one release into one folder: 'fusionctl install'",
        );
    }
    let places =
        programs.iter().filter_map(|program| program.path.as_ref().map(|path| path.display().to_string()));
    Check::pass("programs", places.collect::<Vec<_>>().join(", "))
}

fn quarantines(programs: &[Program]) -> Option<Check> {
    const ID: &str = "quarantine";
    let of = |program: &Program| program.quarantine.as_ref().map(quarantine);
    programs.iter().find_map(of)?;
    let marked = names(programs, |program| of(program) == Some(Quarantine::Marked));
    let unknown =
        names(programs, |program| program.path.is_some() && of(program) == Some(Quarantine::Unknown));
    Some(match (marked.is_empty(), unknown.is_empty()) {
        (false, _) => Check::fail(
            ID,
            format!("marked as downloaded: {marked}"),
            "macOS asks Apple before it runs such a program, and refuses it if it isn't notarised or there is no network",
            "xattr -d com.apple.quarantine PROGRAM, if you trust where it came from",
        ),
        (true, false) => Check::warn(
            ID,
            format!("not known of {unknown}"),
            "xattr doesn't answer",
            "xattr -p com.apple.quarantine PROGRAM shows why",
        ),
        (true, true) => Check::pass(ID, "none is marked as downloaded"),
    })
}

fn signatures(programs: &[Program]) -> Option<Check> {
    const ID: &str = "signature";
    let of = |program: &Program| program.signature.as_ref().map(signature);
    programs.iter().find_map(of)?;
    let broken = names(programs, |program| of(program) == Some(Signature::Broken));
    let weak = names(programs, |program| {
        program.path.is_some() && matches!(of(program), Some(Signature::None | Signature::Unknown))
    });
    Some(match (broken.is_empty(), weak.is_empty()) {
        (false, _) => Check::fail(
            ID,
            format!("broken: {broken}"),
            "macOS ends a program at once whose file was changed after it was signed, also by copying over it",
            "install it anew: into a new file, which takes the old one's name",
        ),
        (true, false) => Check::warn(
            ID,
            format!("none, or none that codesign can read: {weak}"),
            "Apple silicon runs signed programs only; the linker signs what is built here",
            "build or install it anew",
        ),
        (true, true) => Check::pass(ID, "valid"),
    })
}

fn names(programs: &[Program], which: impl Fn(&Program) -> bool) -> String {
    programs
        .iter()
        .filter(|program| which(program))
        .map(|program| program.name)
        .collect::<Vec<_>>()
        .join(", ")
}
