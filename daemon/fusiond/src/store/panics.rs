//! sled 0.34 panics on damaged files instead of returning an error: turn that into one.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` and returns the message of its panic, if it panics. The panic's usual output goes to the log instead of
/// standard error: to a person it would look as if the daemon had died.
pub(super) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(install_hook);
    let before = CATCHING.replace(true);
    // sled's objects are dropped, not used, after a panic: there is no broken state to be seen.
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    CATCHING.set(before);
    result.map_err(|payload| {
        payload
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "panicked without a message".to_owned())
    })
}

fn install_hook() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let of_sled = std::thread::current().name().is_some_and(|name| name.starts_with("sled-io"));
        if of_sled || CATCHING.try_with(Cell::get).unwrap_or(false) {
            tracing::warn!(target: "fusiond::store", "caught in the store's index: {info}");
        } else {
            usual(info);
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_message() {
        assert_eq!(caught(|| 7), Ok(7));
        assert_eq!(caught(|| panic!("page {}", 3)), Err::<(), _>("page 3".to_owned()));
        assert_eq!(caught(|| panic!("plain")), Err::<(), _>("plain".to_owned()));
    }
}
