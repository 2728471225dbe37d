//! Reads the directory.

use std::io;
use std::path::{Path, PathBuf};

use fs_err as fs;
use fusion_calibrations::models::checkpoint::{Checkpoint, CheckpointError};
use fusion_calibrations::shape::ShapeError;

use super::files::{self, ContentError, Said};
use super::{Configuration, Wanted};

/// The largest file that is read, in bytes: a published `config.json` with quantisation for each module has some 100 KB.
const MOST_BYTES: u64 = 4 << 20;
/// Shapes at most: a model has four to eight layers.
const MOST_SHAPES: usize = 4096;

/// Why the configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// A file or directory can't be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// Something else than a file: reading it might never end.
    #[error("{path} is no file: put a file there, or take it away")]
    NoFile {
        /// What lies there.
        path: PathBuf,
    },
    /// A file is too large to be what it should be.
    #[error("{path} has {bytes} bytes, more than the {MOST_BYTES} that such a file may have")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// A file's content can't be used.
    #[error("{path}: {source}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: ContentError,
    },
    /// A checkpoint's `config.json` can't be used.
    #[error("{path}: {source}")]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: CheckpointError,
    },
    /// A checkpoint's layer with the configured rows can't be.
    #[error("{path}: {source}")]
    Shape {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: ShapeError,
    },
    /// Too much is wanted.
    #[error("{0} shapes are wanted, at most {MOST_SHAPES} are kept calibrated: name fewer models or rows")]
    TooManyShapes(usize),
}

/// Everything that `directory` says; as usual if it isn't there.
///
/// # Errors
/// Every [`ConfigurationError`]: one bad file refuses the whole, so that what runs is always what was written.
pub fn load(directory: &Path) -> Result<Configuration, ConfigurationError> {
    let said = match read(&directory.join("config.toml"))? {
        Some((path, text)) => {
            files::config(&text).map_err(|source| ConfigurationError::Content { path, source })?
        }
        None => Said::default(),
    };
    let mut wanted: Vec<Wanted> = said
        .shapes
        .iter()
        .map(|(shape, model)| Wanted { shape: *shape, origin: format!("model {model}") })
        .collect();
    for path in entries(&directory.join("shapes"))? {
        if path.extension().is_some_and(|extension| extension == "toml") {
            wanted.extend(shape_set(&path)?);
        }
    }
    let mut skipped = Vec::new();
    for path in entries(&directory.join("models"))? {
        checkpoint(&path, &said.rows, &mut wanted, &mut skipped)?;
    }
    keep_first(&mut wanted);
    if wanted.len() > MOST_SHAPES {
        return Err(ConfigurationError::TooManyShapes(wanted.len()));
    }
    Ok(Configuration {
        duty: said.duty,
        patience: said.patience,
        client_workers: said.client_workers,
        wanted,
        skipped,
        log_filter: said.log_filter,
    })
}

fn keep_first(wanted: &mut Vec<Wanted>) {
    let mut seen = std::collections::HashSet::new();
    wanted.retain(|wanted| seen.insert(wanted.shape));
}

fn shape_set(path: &Path) -> Result<Vec<Wanted>, ConfigurationError> {
    let Some((path, text)) = read(path)? else { return Ok(Vec::new()) };
    let origin = format!("shapes/{}", name(&path));
    match files::shape_set(&text) {
        Ok(shapes) => Ok(shapes.into_iter().map(|shape| Wanted { shape, origin: origin.clone() }).collect()),
        Err(source) => Err(ConfigurationError::Content { path, source }),
    }
}

/// A folder with a `config.json`, or such a file itself.
fn checkpoint(
    path: &Path,
    rows: &[u32],
    wanted: &mut Vec<Wanted>,
    skipped: &mut Vec<String>,
) -> Result<(), ConfigurationError> {
    let origin = format!("models/{}", name(path));
    let file = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
    let Some((path, text)) = read(&file)? else {
        skipped.push(format!("{origin}: no config.json"));
        return Ok(());
    };
    let found = match Checkpoint::parse(&text) {
        Ok(found) => found,
        // A model that nobody here knows is no mistake of the user's.
        Err(unknown @ CheckpointError::UnknownType(_)) => {
            skipped.push(format!("{origin}: {unknown}"));
            return Ok(());
        }
        Err(source) => return Err(ConfigurationError::Checkpoint { path, source }),
    };
    for (layer, _) in &found.layers {
        for rows in rows {
            let shape = layer
                .with_rows(*rows)
                .map_err(|source| ConfigurationError::Shape { path: path.clone(), source })?;
            wanted.push(Wanted { shape, origin: origin.clone() });
        }
    }
    skipped.extend(found.skipped.iter().map(|what| format!("{origin}: {what}")));
    Ok(())
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// What is in a directory, in order; nothing if it isn't there. Hidden files are somebody else's.
fn entries(directory: &Path) -> Result<Vec<PathBuf>, ConfigurationError> {
    let listed = match fs::read_dir(directory) {
        Ok(listed) => listed,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut paths = listed.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, io::Error>>()?;
    paths.retain(|path| !name(path).starts_with('.'));
    paths.sort();
    Ok(paths)
}

/// A file's path and text; `None` if it isn't there.
fn read(path: &Path) -> Result<Option<(PathBuf, String)>, ConfigurationError> {
    match fs::metadata(path) {
        Ok(found) if found.len() > MOST_BYTES => {
            Err(ConfigurationError::TooLarge { path: path.to_owned(), bytes: found.len() })
        }
        Ok(found) if !found.is_file() => Err(ConfigurationError::NoFile { path: path.to_owned() }),
        Ok(_) => Ok(Some((path.to_owned(), fs::read_to_string(path)?))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    const LLAMA: &str = r#"{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2}"#;

    fn directory(files: &[(&str, &str)]) -> TempDir {
        let directory = TempDir::new().unwrap();
        for (path, text) in files {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        directory
    }

    #[test]
    fn no_directory_is_as_usual() {
        let nowhere = TempDir::new().unwrap();
        assert_eq!(load(&nowhere.path().join("absent")).unwrap(), Configuration::default());
    }

    #[test]
    fn models_shapes_and_checkpoints_come_together_each_shape_once() {
        let place = directory(&[
            ("config.toml", "[measure]\nmodels = ['qwen2.5-0.5b']\nrows = [512]"),
            ("shapes/mine.toml", "shapes = ['512x896x4864', '64x64x64']"),
            ("shapes/.hidden.toml", "nonsense"),
            ("shapes/readme.txt", "not a shape set"),
            ("models/tiny/config.json", LLAMA),
            ("models/empty/other.txt", ""),
            ("models/strange/config.json", r#"{"model_type": "mamba"}"#),
        ]);
        let found = load(place.path()).unwrap();
        let origins: Vec<&str> = found.wanted.iter().map(|wanted| wanted.origin.as_str()).collect();
        assert_eq!(origins.iter().filter(|origin| **origin == "model qwen2.5-0.5b").count(), 4);
        assert_eq!(origins.iter().filter(|origin| **origin == "shapes/mine.toml").count(), 1);
        // q and o, k and v, gate and up, down.
        assert_eq!(origins.iter().filter(|origin| **origin == "models/tiny").count(), 4);
        assert_eq!(found.skipped[0], "models/empty: no config.json");
        assert!(found.skipped[1].starts_with("models/strange: models of type 'mamba'"));
        assert_eq!(found.skipped[2], "models/tiny: lm_head: a prefill computes it for one row");
    }

    #[test]
    fn linked_folders_are_read_and_dangling_links_are_named() {
        let elsewhere = directory(&[("llama/config.json", LLAMA)]);
        let place = directory(&[("models/x", "")]);
        fs::remove_file(place.path().join("models/x")).unwrap();
        std::os::unix::fs::symlink(elsewhere.path().join("llama"), place.path().join("models/linked"))
            .unwrap();
        std::os::unix::fs::symlink("/nowhere/at/all", place.path().join("models/dangling")).unwrap();
        let found = load(place.path()).unwrap();
        assert_eq!(found.wanted.len(), 4);
        assert_eq!(found.skipped[0], "models/dangling: no config.json");
    }

    #[test]
    fn what_is_no_file_is_named_and_never_waited_for() {
        for path in ["config.toml", "shapes/mine.toml", "models/x/config.json"] {
            let place = directory(&[(&format!("{path}.d/x"), "")]);
            fs::rename(place.path().join(format!("{path}.d")), place.path().join(path)).unwrap();
            let error = load(place.path()).unwrap_err().to_string();
            assert!(error.contains(path) && error.contains("is no file"), "{error}");
        }
        let place = directory(&[("shapes/good.toml", "shapes = ['64x64x64']")]);
        let _socket = std::os::unix::net::UnixListener::bind(place.path().join("config.toml")).unwrap();
        assert!(load(place.path()).unwrap_err().to_string().contains("is no file"));
        let place = directory(&[]);
        fs::write(place.path().join("config.toml"), [0xff, 0xfe, 0x00]).unwrap();
        assert!(load(place.path()).unwrap_err().to_string().contains("config.toml"));
    }

    #[test]
    fn one_bad_file_refuses_the_whole_and_is_named() {
        for (path, text) in [
            ("config.toml", "nonsense"),
            ("shapes/mine.toml", "shapes = ['x']"),
            ("models/broken/config.json", "{"),
            ("models/hollow/config.json", r#"{"model_type": "llama"}"#),
        ] {
            let place = directory(&[(path, text), ("shapes/good.toml", "shapes = ['64x64x64']")]);
            let error = load(place.path()).unwrap_err().to_string();
            assert!(error.contains(path), "{path}: {error}");
        }
    }
}
