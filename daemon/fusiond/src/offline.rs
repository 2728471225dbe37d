//! `fusiond store`: care for the store while no daemon runs. `fusionctl store` calls this when nothing answers on the socket.

use std::path::PathBuf;

use fusiond::service::verified;
use fusiond::store::{CalibrationStore, Exported, Rebuilt, SledStore, StoreError};
use serde_json::json;

use crate::arguments::StoreCommand;
use crate::{Failure, state_directory};

/// sysexits' EX_DATAERR.
const FAULTS: u8 = 65;

pub(crate) fn run(command: StoreCommand, state_dir: Option<PathBuf>) -> Result<(), Failure> {
    let state = state_directory(state_dir)?;
    let failed = |error: StoreError| {
        (if matches!(error, StoreError::Locked { .. }) { 75 } else { 74 }, error.to_string())
    };
    let mut store = SledStore::open(&state).map_err(failed)?.store;
    match command {
        StoreCommand::Verify(output) => verify(&store, output.json).map_err(failed)?,
        StoreCommand::Rebuild(output) => {
            rebuilt(&store.rebuild().map_err(failed)?, output.json);
            Ok(())
        }
        StoreCommand::Export { path, output } => {
            exported(&store.export(&path).map_err(failed)?, output.json);
            Ok(())
        }
    }
}

fn verify(store: &SledStore, json: bool) -> Result<Result<(), Failure>, StoreError> {
    let report = store.verify()?;
    let wire = verified(&report);
    if json {
        print(&json!({
            "schema": "fusionctl.store.verify/1",
            "estimates": wire.estimates,
            "history": wire.history,
            "record_files": wire.record_files,
            "bytes": wire.bytes,
            "problems": wire.problems,
            "set_aside": wire.set_aside,
        }));
    } else {
        println!(
            "{} estimates, {} earlier ones, {} record files, {} KiB",
            wire.estimates,
            wire.history,
            wire.record_files,
            wire.bytes.div_ceil(1024)
        );
        for problem in &wire.problems {
            println!("problem: {problem}");
        }
        for aside in &wire.set_aside {
            println!("set aside, yours to remove: {aside}");
        }
    }
    Ok(if report.is_sound() {
        Ok(())
    } else {
        Err((FAULTS, "the store has faults: mend them with 'fusiond store rebuild'".to_owned()))
    })
}

fn rebuilt(rebuilt: &Rebuilt, json: bool) {
    let aside = rebuilt.set_aside.as_ref().map(|path| path.display().to_string());
    if json {
        print(&json!({
            "schema": "fusionctl.store.rebuild/1",
            "records": rebuilt.records,
            "unreadable": rebuilt.damaged_files,
            "set_aside": aside,
        }));
        return;
    }
    println!("{} records were taken over from the record files", rebuilt.records);
    for file in &rebuilt.damaged_files {
        println!("unreadable, kept as it is: {file}");
    }
    if let Some(aside) = aside {
        println!("the old index is kept in {aside}");
    }
}

fn exported(exported: &Exported, json: bool) {
    let path = exported.directory.display().to_string();
    if json {
        print(&json!({ "schema": "fusionctl.store.export/1", "records": exported.records, "path": path }));
    } else {
        println!("{} records were written to {path}", exported.records);
    }
}

fn print(value: &serde_json::Value) {
    println!("{value:#}");
}
