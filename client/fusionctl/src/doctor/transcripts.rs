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

/// What the manager does with the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Managed {
    /// It runs it.
    Running,
    /// It would start it.
    Waiting,
    /// It tried, and the daemon failed.
    Failed {
        /// In the manager's words.
        how: String,
    },
    /// It doesn't know it.
    Unknown,
    /// There is no manager that can be asked.
    Nobody {
        /// Why.
        why: String,
    },
}

/// What `launchctl print DOMAIN/LABEL` says: exit code 113 for a label that isn't there, 112 and 125 for a domain that isn't.
pub(crate) fn launchd(ran: &Ran) -> Managed {
    let (code, said) = match ran {
        Ran::Not { why } => return Managed::Nobody { why: why.clone() },
        Ran::Ended { code, said } => (*code, said),
    };
    let value = |key: &str| {
        let lines = said.lines().filter_map(|line| line.trim().split_once(" = "));
        lines.filter(|(name, _)| *name == key).map(|(_, value)| value.to_owned()).next()
    };
    match (code, value("state").as_deref(), value("last exit code")) {
        (0, Some("running"), _) => Managed::Running,
        (0, _, Some(exit)) if exit != "0" && exit != "(never exited)" => {
            Managed::Failed { how: format!("last exit code {exit}") }
        }
        (0, _, _) => Managed::Waiting,
        (113, _, _) => Managed::Unknown,
        (code, _, _) => Managed::Nobody { why: format!("launchctl exited with {code}") },
    }
}

/// What `systemctl --user is-active UNIT` says: a word, and exit code 0 only for "active".
pub(crate) fn systemd(ran: &Ran) -> Managed {
    let (code, said) = match ran {
        Ran::Not { why } => return Managed::Nobody { why: why.clone() },
        Ran::Ended { code, said } => (*code, said),
    };
    match said.lines().next().unwrap_or_default().trim() {
        "active" | "reloading" | "activating" => Managed::Running,
        "failed" => Managed::Failed { how: "systemd calls it failed".to_owned() },
        // A unit that isn't there is "inactive", too, with exit code 4 since systemd 246.
        "inactive" if code == 4 => Managed::Unknown,
        "inactive" | "deactivating" => Managed::Waiting,
        "unknown" => Managed::Unknown,
        other => Managed::Nobody { why: other.to_owned() },
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

    #[test]
    fn launchd_says_what_it_does() {
        let running = "gui/501/dev.fusion.fusiond = {\n\tactive count = 4\n\tpath = /Users/x/Library/LaunchAgents/dev.fusion.fusiond.plist\n\ttype = LaunchAgent\n\tstate = running\n\n\tprogram = /Users/x/.fusion/bin/fusiond\n\tpid = 812\n\tlast exit code = (never exited)\n}\n";
        assert_eq!(launchd(&ended(0, running)), Managed::Running);
        let waiting =
            running.replace("state = running", "state = not running").replace("(never exited)", "0");
        assert_eq!(launchd(&ended(0, &waiting)), Managed::Waiting);
        let failed = waiting.replace("last exit code = 0", "last exit code = 78: EX_CONFIG");
        assert_eq!(
            launchd(&ended(0, &failed)),
            Managed::Failed { how: "last exit code 78: EX_CONFIG".to_owned() }
        );
        let unknown = "Bad request.\nCould not find service \"dev.fusion.fusiond\" in domain for login\n";
        assert_eq!(launchd(&ended(113, unknown)), Managed::Unknown);
        assert!(matches!(
            launchd(&ended(125, "Domain does not support specified action")),
            Managed::Nobody { .. }
        ));
        assert!(matches!(launchd(&missing()), Managed::Nobody { .. }));
    }

    #[test]
    fn systemd_says_what_it_does() {
        assert_eq!(systemd(&ended(0, "active\n")), Managed::Running);
        assert_eq!(systemd(&ended(3, "inactive\n")), Managed::Waiting);
        assert_eq!(systemd(&ended(4, "inactive\n")), Managed::Unknown);
        assert!(matches!(systemd(&ended(3, "failed\n")), Managed::Failed { .. }));
        let no_bus = "Failed to connect to bus: No medium found\n";
        assert_eq!(systemd(&ended(1, no_bus)), Managed::Nobody { why: no_bus.trim().to_owned() });
        assert!(matches!(systemd(&missing()), Managed::Nobody { .. }));
    }
}
