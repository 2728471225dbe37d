//! The store on its own thread, asked by async code.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod store_support;

use fusiond::store::{
    CalibrationKey, Fault, FaultyStore, MemoryStore, Revision, SledStore, StoreError, StoreHandle,
};
use store_support::{numbers, record};
use tempfile::TempDir;

fn handle() -> StoreHandle {
    StoreHandle::spawn(MemoryStore::default()).unwrap()
}

#[tokio::test]
async fn a_handle_does_what_the_store_does() {
    let state = TempDir::new().unwrap();
    let store = StoreHandle::spawn(SledStore::open(state.path()).unwrap().store).unwrap();
    assert_eq!(store.commit(record(1, 1)).await.unwrap(), Revision(1));
    assert_eq!(store.commit(record(1, 2)).await.unwrap(), Revision(2));
    assert_eq!(numbers(&store.all().await.unwrap()), [2]);
    let key = CalibrationKey::of(&record(1, 0));
    assert_eq!(numbers(&store.history(key).await.unwrap()), [1, 2]);
    assert_eq!(store.of_chip("other".to_owned()).await.unwrap(), []);
    assert!(store.verify().await.unwrap().is_sound());
    assert_eq!(store.rebuild().await.unwrap().records, 2);
    assert_eq!(store.export(state.path().join("export")).await.unwrap().records, 1);
    store.close().await;
    let reopened = SledStore::open(state.path()).unwrap();
    assert_eq!(reopened.health, fusiond::store::Health::Healthy, "closing released the lock");
}

#[tokio::test]
async fn concurrent_commits_are_all_kept() {
    let store = handle();
    let commits: Vec<_> = (0..200u64)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move { store.commit(record(number as u32 + 1, number)).await.unwrap() })
        })
        .collect();
    let mut revisions = Vec::new();
    for commit in commits {
        revisions.push(commit.await.unwrap().0);
    }
    revisions.sort_unstable();
    assert_eq!(revisions, (1..=200).collect::<Vec<_>>());
    assert_eq!(store.all().await.unwrap().len(), 200);
}

#[tokio::test]
async fn what_was_sent_before_closing_is_done_and_later_requests_are_refused() {
    let memory = MemoryStore::default();
    let store = StoreHandle::spawn(memory.clone()).unwrap();
    let sent = store.commit(record(1, 1));
    let (result, ()) = tokio::join!(sent, store.close());
    assert_eq!(result.unwrap(), Revision(1));
    assert!(matches!(store.commit(record(1, 2)).await.unwrap_err(), StoreError::Closed));
    store.close().await;
}

#[tokio::test]
async fn a_request_whose_caller_is_gone_is_still_done() {
    let store = handle();
    let mut commit = Box::pin(store.commit(record(1, 1)));
    // Polled once: sent, not answered.
    tokio::select! {
        biased;
        _ = &mut commit => {}
        () = std::future::ready(()) => {}
    }
    drop(commit);
    assert_eq!(store.revision().await.unwrap(), Revision(1));
}

#[tokio::test]
async fn errors_come_back_and_the_thread_goes_on() {
    let store = StoreHandle::spawn(FaultyStore::new(MemoryStore::default(), 2, Fault::Before)).unwrap();
    store.commit(record(1, 1)).await.unwrap();
    let error = store.commit(record(1, 2)).await.unwrap_err();
    assert!(matches!(error, StoreError::Injected { operation: 2 }), "{error}");
    store.commit(record(1, 3)).await.unwrap();
}

#[tokio::test]
async fn a_panic_stops_the_store_and_not_the_daemon() {
    let store = handle();
    let error = store.with::<()>(|_| panic!("as sled does")).await.unwrap_err();
    assert!(matches!(error, StoreError::Stopped { .. }), "{error}");
    let error = store.commit(record(1, 1)).await.unwrap_err();
    assert!(matches!(error, StoreError::Stopped { .. }), "{error}");
}
