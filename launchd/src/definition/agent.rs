//! The LaunchAgent's property list: launchd.plist(5).

use std::collections::BTreeMap;

use plist::XmlWriteOptions;
use serde::{Deserialize, Serialize};

use super::{arguments, text};
use crate::error::ServiceError;
use crate::manager::ManagerKind;
use crate::places::Places;
use crate::{LABEL, Start};

/// The name of the socket in the property list, by which the daemon asks for it.
const SOCKET: &str = "rpc";
/// Why the process type is what it is: told in the file, where whoever wonders looks.
const PROCESS_TYPE_REASON: &str = "\
Interactive, since what this agent's worker measures must be what programs in a terminal get: the other types run at lower CPU and I/O
	     priority, Background on efficiency cores only, which would falsify every ratio. The daemon itself rests until it is asked.";

/// A LaunchAgent. What isn't here is launchd's default on purpose: no Nice, no LowPriorityIO, no LegacyTimers, no shell around the program (macOS shows users
/// the program's own name under "can run in the background").
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct Agent {
    label: String,
    program_arguments: Vec<String>,
    process_type: ProcessType,
    /// At login, or with the first connection.
    run_at_load: bool,
    keep_alive: KeepAlive,
    /// Seconds between two starts: launchd knows no limit of their number, so the daemon counts failed ones by itself.
    throttle_interval: u32,
    /// Seconds between SIGTERM and SIGKILL: the daemon takes 3 s for its callers and 2 s for closing its store at most.
    exit_time_out: u32,
    sockets: BTreeMap<String, Socket>,
    /// Both kinds, else there is no such agent over ssh.
    limit_load_to_session_type: Vec<String>,
    /// For what the daemon can't log: a loader's or an allocator's last words. launchd never rotates it; the daemon does when it starts.
    standard_error_path: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum ProcessType {
    Interactive,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct KeepAlive {
    /// False: kept alive after every exit but a successful one.
    successful_exit: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Socket {
    sock_path_name: String,
    sock_path_mode: u32,
}

impl Agent {
    /// The agent of a daemon in these places.
    ///
    /// # Errors
    /// [`ServiceError::UnusablePath`].
    pub fn new(start: Start, places: &Places) -> Result<Self, ServiceError> {
        let socket = Socket { sock_path_name: text(places.socket.as_path())?, sock_path_mode: 0o600 };
        Ok(Self {
            label: LABEL.to_owned(),
            program_arguments: arguments(ManagerKind::Launchd, places)?,
            process_type: ProcessType::Interactive,
            run_at_load: start == Start::AtLogin,
            keep_alive: KeepAlive { successful_exit: false },
            throttle_interval: 10,
            exit_time_out: 10,
            sockets: BTreeMap::from([(SOCKET.to_owned(), socket)]),
            limit_load_to_session_type: vec!["Aqua".to_owned(), "Background".to_owned()],
            standard_error_path: text(&fusion_proto::state::crash_log(&places.state))?,
        })
    }

    /// The file's text, with the reason for the process type as a comment.
    ///
    /// # Errors
    /// [`ServiceError::PropertyList`].
    pub fn to_xml(&self) -> Result<String, ServiceError> {
        let mut bytes = Vec::new();
        plist::to_writer_xml_with_options(&mut bytes, self, &XmlWriteOptions::default())?;
        let xml = String::from_utf8_lossy(&bytes);
        // The crate writes no comments.
        let key = "\t<key>ProcessType</key>";
        let commented = xml.replacen(key, &format!("\t<!-- {PROCESS_TYPE_REASON} -->\n{key}"), 1);
        Ok(if commented.ends_with('\n') { commented } else { commented + "\n" })
    }
}
