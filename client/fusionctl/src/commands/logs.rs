//! `fusionctl logs`: the daemon's own files. They are there whether or not it runs.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fusion_client::SocketPath;
use fusion_client::state::{crash_log, log_file, rolled, state_directory};

use super::service;
use crate::arguments::Logs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json::{self, Schema};
use crate::output::Output;

/// Between two looks at a file that is followed: as fast as a person reads.
const INTERVAL: Duration = Duration::from_millis(200);

pub(super) async fn run(command: &Logs, socket: &SocketPath, output: Output) -> Result<(), Failure> {
    if output.json && command.follow {
        return Err(Failure::Usage("--follow prints text: leave out --json".to_owned()));
    }
    let state = match service::state_directory_of(socket)? {
        Some(state) => state,
        None => state_directory(None)?,
    };
    let file = if command.crashes { crash_log(&state) } else { log_file(&state) };
    let (lines, end) = last_lines(&file, command.lines)?;
    if lines.is_empty() && !command.follow && !file.exists() && !command.crashes {
        let message = format!("there is no log at {}: the daemon writes it when it starts", file.display());
        return Err(Failure::ended(Exit::NotRunning, message));
    }
    if output.json {
        let document = json::logs::Logs { file: file.display().to_string(), lines: lines.into() };
        return output.print(&json::document(Schema::Logs, &document)?);
    }
    for line in &lines {
        output.print(line)?;
    }
    if command.follow { follow(&file, end, output).await } else { Ok(()) }
}

/// The last lines of a log and its older parts, the oldest first; and how far the file that is written to was read.
fn last_lines(file: &Path, most: usize) -> Result<(VecDeque<String>, u64), Failure> {
    let mut lines = VecDeque::new();
    let mut end = 0;
    let mut parts: Vec<PathBuf> = rolled(file).collect();
    parts.reverse();
    for part in parts.iter().map(PathBuf::as_path).chain([file]) {
        let Some(opened) = open(part)? else { continue };
        let mut reader = BufReader::new(opened);
        let mut line = Vec::new();
        end = 0;
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line).map_err(|error| unreadable(part, &error))?;
            if read == 0 {
                break;
            }
            end += read as u64;
            lines.push_back(String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned());
            if lines.len() > most {
                lines.pop_front();
            }
        }
    }
    Ok((lines, end))
}

/// Prints what is added, also where the file is rolled over. Ends with the process.
async fn follow(path: &Path, from: u64, output: Output) -> Result<(), Failure> {
    let mut current = open(path)?;
    if let Some(file) = &mut current {
        io::Seek::seek(file, io::SeekFrom::Start(from)).map_err(|error| unreadable(path, &error))?;
    }
    loop {
        // First the question, then the rest of the old file: after it was set aside nothing is added.
        let replaced = replaced(current.as_ref(), path);
        if let Some(file) = &mut current {
            pass_on(file, path, output)?;
        }
        if replaced {
            current = open(path)?;
        } else {
            tokio::time::sleep(INTERVAL).await;
        }
    }
}

fn pass_on(file: &mut File, path: &Path, output: Output) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| unreadable(path, &error))?;
    if bytes.is_empty() { Ok(()) } else { output.print(&String::from_utf8_lossy(&bytes)) }
}

/// Whether another file lies at `path` now.
fn replaced(current: Option<&File>, path: &Path) -> bool {
    let Ok(there) = path.metadata() else { return false };
    current.and_then(|file| file.metadata().ok()).is_none_or(|open| open.ino() != there.ino())
}

fn open(path: &Path) -> Result<Option<File>, Failure> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(unreadable(path, &error)),
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::ended(Exit::Io, format!("can't read '{}': {error}", path.display()))
}
