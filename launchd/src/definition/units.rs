//! systemd's units of the user: systemd.socket(5), systemd.service(5), and the quoting of systemd.syntax(7).

use super::REPLACED;

/// The socket, which outlives the daemon: clients wait in it while the daemon is replaced.
pub(super) fn socket(path: &str) -> String {
    format!(
        "\
# Written by 'fusionctl install', removed by 'fusionctl uninstall'.
[Unit]
Description=Socket of fusiond
Documentation=https://github.com/fusiond/fusiond

[Socket]
ListenStream={path}
SocketMode=0600
DirectoryMode=0700
RemoveOnStop=yes

[Install]
WantedBy=sockets.target
",
        path = without_specifiers(path)
    )
}

/// The daemon.
pub(super) fn service(arguments: &[String]) -> String {
    // Variables are looked for in arguments only, not in the program's path: a dollar is doubled there and stays single here.
    let words = arguments
        .iter()
        .enumerate()
        .map(|(place, word)| if place == 0 { quoted(word) } else { quoted(&word.replace('$', "$$")) });
    let command = words.collect::<Vec<_>>().join(" ");
    format!(
        "\
# Written by 'fusionctl install', removed by 'fusionctl uninstall'.
[Unit]
Description=fusiond: shares matrix products between GPU and CPU
Documentation=https://github.com/fusiond/fusiond
Requires=fusiond.socket
After=fusiond.socket
# The daemon counts its failed starts, gives up, and tells whoever asks why. systemd's limit would close the socket without a word.
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={command}
Restart=on-failure
# The daemon's program was replaced: start the new one.
RestartForceExitStatus={REPLACED}
SuccessExitStatus={REPLACED}
# The daemon takes 3 s for its callers and 2 s for closing its store at most.
TimeoutStopSec=10

[Install]
WantedBy=default.target
"
    )
}

/// One word of a command line.
fn quoted(word: &str) -> String {
    let mut quoted = String::from("\"");
    for c in word.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '%' => quoted.push_str("%%"),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A path that takes its whole line.
fn without_specifiers(path: &str) -> String {
    path.replace('%', "%%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_paths_stay_one_word() {
        assert_eq!(quoted(r#"/my "code" 100%/$x\y"#), r#""/my \"code\" 100%%/$x\\y""#);
        let command = service(&["/my $code/fusiond".to_owned(), "/my $code".to_owned()]);
        assert!(command.contains(r#"ExecStart="/my $code/fusiond" "/my $$code""#), "{command}");
        assert_eq!(without_specifiers("/100% mine/s"), "/100%% mine/s");
    }
}
