//! Peers that aren't ours.

use std::path::Path;
use std::process::Command;

use crate::support::Place;

/// Set where the Python packages are required: `make test` installs them and says so.
const REQUIRED: &str = "FUSION_REQUIRE_PYTHON";

/// grpcio from PyPI: reflection, health, a ratio and a calibration, without any generated code of ours.
pub async fn python_grpc_speaks_with_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let packages = root.join(".python/site");
    if !packages.exists() {
        assert!(std::env::var_os(REQUIRED).is_none(), "{} is missing", packages.display());
        eprintln!("SKIPPED: 'cargo xtask python-deps' installs what this test needs");
        return;
    }
    let place = Place::new();
    let daemon = place.start("steady").await;
    let output = Command::new("python3")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lifecycle/interop.py"))
        .arg(daemon.socket.as_path())
        .env("PYTHONPATH", &packages)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
