//! A statement in the middle of its work.

use stillpoint_tests::{Background, Session, wait_until};

use crate::{DATABASE, Scene, waits_behind};

/// A statement that waits for a lock, and the session that has it.
pub struct Held {
    pub running: Background,
    holder: Session,
}

/// Starts a statement and holds it at `table`.
#[track_caller]
pub fn hold(scene: &mut Scene, sql: &str, table: &str) -> Held {
    let session = scene.cluster.session(DATABASE);
    hold_in(scene, session, sql, table)
}

/// As [`hold`], in a session that is there.
#[track_caller]
pub fn hold_in(scene: &mut Scene, session: Session, sql: &str, table: &str) -> Held {
    let mut holder = scene.cluster.session(DATABASE);
    holder.exec(&format!("BEGIN; LOCK TABLE {table} IN SHARE UPDATE EXCLUSIVE MODE"));
    let running = session.start(sql);
    wait_until(&mut scene.observer, &waits_behind(running.pid(), holder.pid()));
    Held { running, holder }
}

impl Held {
    /// Lets the statement end; gives its session.
    #[track_caller]
    pub fn let_go(self) -> Session {
        self.release().finish()
    }

    /// Lets the statement go on.
    #[track_caller]
    pub fn release(mut self) -> Background {
        self.holder.exec("COMMIT");
        self.running
    }

    /// Lets the statement go on until it waits for `table`.
    #[track_caller]
    pub fn go_on_to(self, scene: &mut Scene, table: &str) -> Self {
        let Self { running, mut holder } = self;
        let mut next = scene.cluster.session(DATABASE);
        next.exec(&format!("BEGIN; LOCK TABLE {table} IN SHARE UPDATE EXCLUSIVE MODE"));
        holder.exec("COMMIT");
        wait_until(&mut scene.observer, &waits_behind(running.pid(), next.pid()));
        Self { running, holder: next }
    }

    /// Ends the statement from outside; gives back when its session has let go of everything.
    #[track_caller]
    pub fn end_by(mut self, scene: &mut Scene, function: &str, message: &str) {
        scene.cluster.allow_log(message);
        let pid = self.running.pid();
        assert!(scene.observer.yes(&format!("SELECT {function}({pid})")));
        let (session, result) = self.running.result();
        assert!(result.is_err());
        drop(session);
        self.holder.exec("COMMIT");
        let gone = format!("SELECT NOT EXISTS (SELECT FROM pg_locks WHERE pid = {pid})");
        wait_until(&mut scene.observer, &gone);
    }
}
