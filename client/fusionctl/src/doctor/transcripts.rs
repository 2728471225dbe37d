//! What other programs print, and what it means.

use super::facts::Ran;

/// "macOS 15.6 (24G84)" of `sw_vers`; "Debian GNU/Linux 12 (bookworm)" of /etc/os-release.
pub(crate) fn release(said: &str) -> Option<String> {
    let value = |key: &str, separator: char| {
        let lines = said.lines().filter_map(|line| line.split_once(separator));
        lines
            .filter(|(name, _)| name.trim() == key)
            .map(|(_, value)| value.trim().trim_matches('"').to_owned())
            .next()
    };
    let macos = || {
        Some(format!(
            "{} {} ({})",
            value("ProductName", ':')?,
            value("ProductVersion", ':')?,
            value("BuildVersion", ':')?
        ))
    };
    macos().or_else(|| value("PRETTY_NAME", '='))
}

/// A panic of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Panic {
    /// The daemon's version.
    pub(crate) version: String,
    /// When, in UTC.
    pub(crate) at: String,
    /// Where, and with which words.
    pub(crate) words: String,
}

/// The last panic in the daemon's crash log: "fusiond 1.0.0 (process 42) at 2026-08-22T12:00:00Z, a panic:", then what Rust prints, "thread 'main'
/// panicked at src/x.rs:1:2:" and the message.
pub(crate) fn last_panic(log: &str) -> Option<Panic> {
    let lines: Vec<&str> = log.lines().collect();
    let is_one = |line: &&str| line.starts_with("fusiond ") && line.ends_with(", a panic:");
    let place = lines.iter().rposition(is_one)?;
    let version = lines[place].split(' ').nth(1)?.to_owned();
    let at = lines[place].rsplit_once(" at ")?.1.strip_suffix(", a panic:")?.to_owned();
    let mut said = lines[place + 1..].iter().skip_while(|line| line.is_empty());
    let thread = said.next().and_then(|line| line.split_once("panicked at ")).map(|(_, place)| place);
    let words: Vec<&str> = thread.into_iter().chain(said.next().copied()).collect();
    Some(Panic { version, at, words: words.join(" ") })
}

/// The path that `xcode-select -p` or `xcrun -f` found.
pub(crate) fn found_path(ran: &Ran) -> Option<&str> {
    match ran {
        Ran::Ended { code: 0, said } => said.lines().map(str::trim).find(|line| line.starts_with('/')),
        _ => None,
    }
}

/// Whether a file carries the mark that a browser or a mail program left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quarantine {
    /// It doesn't.
    Free,
    /// It does.
    Marked,
    /// `xattr` says neither.
    Unknown,
}

/// What `xattr -p com.apple.quarantine FILE` says: exit code 1 and "No such xattr" where there is none.
pub(crate) fn quarantine(ran: &Ran) -> Quarantine {
    match ran {
        Ran::Ended { code: 0, .. } => Quarantine::Marked,
        Ran::Ended { said, .. } if said.contains("No such xattr") => Quarantine::Free,
        _ => Quarantine::Unknown,
    }
}

/// Whether a program is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signature {
    /// And nothing was changed since.
    Valid,
    /// It isn't.
    None,
    /// It was changed after it was signed, or its certificate isn't trusted: macOS kills it.
    Broken,
    /// `codesign` says neither.
    Unknown,
}

/// What `codesign -v FILE` says: nothing where all is well.
pub(crate) fn signature(ran: &Ran) -> Signature {
    match ran {
        Ran::Ended { code: 0, .. } => Signature::Valid,
        Ran::Ended { said, .. } if said.contains("not signed at all") => Signature::None,
        Ran::Ended { code: 1 | 3, .. } => Signature::Broken,
        _ => Signature::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(code: i32, said: &str) -> Ran {
        Ran::Ended { code, said: said.to_owned() }
    }

    fn missing() -> Ran {
        Ran::Not { why: "not there".to_owned() }
    }

    #[test]
    fn the_last_panic_is_found_among_other_words() {
        let log = "fusiond: fusiond can't start: no disk\n\
                   fusiond 0.9.0 (process 41) at 2026-08-21T12:00:00Z, a panic:\n\nthread 'main' panicked at a.rs:1:2:\nold\n\
                   fusiond 1.0.0 (process 42) at 2026-08-22T12:00:00Z, a panic:\n\nthread 'x' panicked at b.rs:3:4:\nno luck\nnote: run with\n";
        let panic = last_panic(log).unwrap();
        assert_eq!((panic.version.as_str(), panic.at.as_str()), ("1.0.0", "2026-08-22T12:00:00Z"));
        assert_eq!(panic.words, "b.rs:3:4: no luck");
        assert_eq!(last_panic("fusiond: no disk\n"), None);
        assert_eq!(
            last_panic("fusiond 1.0.0 (process 42) at 2026-08-22T12:00:00Z, a panic:").unwrap().words,
            ""
        );
    }

    #[test]
    fn releases_are_named() {
        let sw_vers = "ProductName:\t\tmacOS\nProductVersion:\t\t15.6.1\nBuildVersion:\t\t24G90\n";
        assert_eq!(release(sw_vers).as_deref(), Some("macOS 15.6.1 (24G90)"));
        let debian = "NAME=\"Debian GNU/Linux\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\n";
        assert_eq!(release(debian).as_deref(), Some("Debian GNU/Linux 12 (bookworm)"));
        assert_eq!(release("nothing of the kind"), None);
    }

    #[test]
    fn tools_are_found_or_not() {
        let xcode = ended(0, "/Applications/Xcode.app/Contents/Developer\n");
        assert_eq!(found_path(&xcode), Some("/Applications/Xcode.app/Contents/Developer"));
        let none = "xcode-select: error: unable to get active developer directory, use `sudo xcode-select --switch path/to/Xcode.app` to set one";
        assert_eq!(found_path(&ended(2, none)), None);
        let metal = "xcrun: error: unable to find utility \"metal\", not a developer tool or in PATH";
        assert_eq!(found_path(&ended(72, metal)), None);
        assert_eq!(found_path(&missing()), None);
    }

    #[test]
    fn quarantine_and_signatures_are_told() {
        assert_eq!(quarantine(&ended(0, "0083;65f1c1d2;Safari;6E2F…\n")), Quarantine::Marked);
        assert_eq!(
            quarantine(&ended(1, "xattr: fusiond: No such xattr: com.apple.quarantine\n")),
            Quarantine::Free
        );
        assert_eq!(quarantine(&ended(1, "xattr: No such file: fusiond\n")), Quarantine::Unknown);
        assert_eq!(quarantine(&missing()), Quarantine::Unknown);
        assert_eq!(signature(&ended(0, "")), Signature::Valid);
        assert_eq!(
            signature(&ended(1, "fusiond: code object is not signed at all\nIn architecture: arm64\n")),
            Signature::None
        );
        assert_eq!(
            signature(&ended(
                1,
                "fusiond: invalid signature (code or signature have been modified)\nIn architecture: arm64\n"
            )),
            Signature::Broken
        );
        assert_eq!(
            signature(&ended(1, "fusiond: a sealed resource is missing or invalid\n")),
            Signature::Broken
        );
        assert_eq!(signature(&missing()), Signature::Unknown);
    }
}
