//! The storage check's two ways: the extension's function, or plain SQL over two connections.

use std::collections::HashMap;

use stillpoint_check::{
    Oid, RELATION_ANCESTORS, RELATION_NAMES, RELATION_STATE, Reason, Reasons, RelationState,
};
use tokio_postgres::Row;

use super::{Error, Session};

/// A relation that differs between the snapshot and now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedRelation {
    /// Its OID.
    pub relation: Oid,
    /// In which ways.
    pub reasons: Reasons,
    /// Whether a `replaced` is proven to have kept every tuple's visibility.
    pub rows_kept: bool,
    /// All its ancestors, through every parent.
    pub ancestors: Vec<Oid>,
}

impl Session {
    /// Whether the extension is there for us: installed in this database, with USAGE on its
    /// schema, and its library loads. `Err` inside: why it does not work although it is there.
    ///
    /// # Errors
    ///
    /// A lost connection.
    pub fn extension_version(&mut self) -> Result<Option<Result<String, String>>, Error> {
        let usable = self
            .client
            .query_opt(
                "SELECT 1 \
                   FROM pg_catalog.pg_extension AS e \
                   JOIN pg_catalog.pg_namespace AS n ON n.oid = e.extnamespace \
                  WHERE e.extname = 'stillpoint' AND n.nspname = 'stillpoint' \
                    AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')",
                &[],
            )
            .map_err(Error::doing("look for the extension"))?;
        if usable.is_none() {
            return Ok(None);
        }
        let answer = self.client.query_one(
            "SELECT stillpoint.version(), pg_catalog.has_function_privilege(\
                        'stillpoint.changed_relations(pg_catalog.oid[])', 'EXECUTE')",
            &[],
        );
        Ok(Some(match answer {
            Ok(row) if row.get(1) => Ok(row.get(0)),
            Ok(_) => Err(String::from("permission denied for function changed_relations")),
            Err(error) => Err(super::describe(&error)),
        }))
    }

    /// The extension's check of relations that this transaction has locked.
    ///
    /// # Errors
    ///
    /// A relation that is not locked and could have been, besides a lost connection.
    pub fn changed_relations(&mut self, relations: &[Oid]) -> Result<Vec<ChangedRelation>, Error> {
        let rows = self
            .client
            .query(
                // With the parameter's type said, no function of the same name that the schema's
                // owner may have added fits as well.
                "SELECT relation, reasons, rows_kept, ancestors \
                   FROM stillpoint.changed_relations($1::pg_catalog.oid[])",
                &[&relations],
            )
            .map_err(Error::doing("check the relations"))?;
        Ok(rows
            .iter()
            .map(|row| ChangedRelation {
                relation: row.get(0),
                // A reason that a later extension may add is none that we know to be
                // harmless: it must not read as "unchanged".
                reasons: row
                    .get::<_, Vec<String>>(1)
                    .iter()
                    .map(|name| Reason::from_name(name).unwrap_or(Reason::Replaced))
                    .collect(),
                rows_kept: row.get(2),
                ancestors: row.get::<_, Option<_>>(3).unwrap_or_default(),
            })
            .collect())
    }

    /// What the relations are under the snapshot that this session now has.
    ///
    /// # Errors
    ///
    /// A lost connection.
    pub fn relation_states(
        &mut self,
        relations: &[Oid],
    ) -> Result<HashMap<Oid, RelationState>, Error> {
        let rows = self
            .client
            .query(RELATION_STATE, &[&relations])
            .map_err(Error::doing("read the catalog of relations"))?;
        Ok(rows.iter().map(relation_state).map(|state| (state.relation, state)).collect())
    }

    /// The relations that bear the names, under the snapshot that this session now has.
    ///
    /// # Errors
    ///
    /// A lost connection.
    pub fn relations_named(
        &mut self,
        names: &[(&str, &str)],
    ) -> Result<HashMap<(String, String), Oid>, Error> {
        if names.is_empty() {
            return Ok(HashMap::new());
        }
        let (schemas, relations): (Vec<&str>, Vec<&str>) = names.iter().copied().unzip();
        let rows = self
            .client
            .query(RELATION_NAMES, &[&schemas, &relations])
            .map_err(Error::doing("look up names"))?;
        Ok(rows.iter().map(|row| ((row.get(0), row.get(1)), row.get(2))).collect())
    }

    /// All ancestors of the relations, under the snapshot that this session now has.
    ///
    /// # Errors
    ///
    /// A lost connection.
    pub fn ancestors(&mut self, relations: &[Oid]) -> Result<HashMap<Oid, Vec<Oid>>, Error> {
        if relations.is_empty() {
            return Ok(HashMap::new());
        }
        let rows = self
            .client
            .query(RELATION_ANCESTORS, &[&relations])
            .map_err(Error::doing("look up ancestors"))?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// How this session can be known from another one on the same server: process id and start
    /// of the backend, and the `xmax` of a snapshot that it has now.
    ///
    /// # Errors
    ///
    /// A lost connection.
    pub fn fingerprint(&mut self) -> Result<Fingerprint, Error> {
        let row = self
            .client
            .query_one(
                "SELECT a.pid, EXTRACT(epoch FROM a.backend_start)::pg_catalog.text, \
                        pg_catalog.txid_snapshot_xmax(pg_catalog.txid_current_snapshot()) \
                   FROM pg_catalog.pg_stat_activity AS a \
                  WHERE a.pid = pg_catalog.pg_backend_pid()",
                &[],
            )
            .map_err(Error::doing("identify the session"))?;
        Ok(Fingerprint { pid: row.get(0), backend_start: row.get(1), xmax: row.get(2) })
    }

    /// Whether this session runs on the server of the session that `other` describes, with a
    /// snapshot that is not older. A list of hosts, a name with several addresses or a proxy
    /// may have led it elsewhere: nothing it sees would then prove anything.
    ///
    /// # Errors
    ///
    /// A lost connection.
    pub fn sees(&mut self, other: &Fingerprint) -> Result<bool, Error> {
        let row = self
            .client
            .query_one(
                "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_stat_activity AS a \
                                 WHERE a.pid = $1 \
                                   AND EXTRACT(epoch FROM a.backend_start)::pg_catalog.text = $2) \
                        AND pg_catalog.txid_snapshot_xmax(pg_catalog.txid_current_snapshot()) \
                            >= $3",
                &[&other.pid, &other.backend_start, &other.xmax],
            )
            .map_err(Error::doing("find the first session from the second"))?;
        Ok(row.get(0))
    }
}

/// What one session tells another by which to find it again.
#[derive(Clone, Debug)]
pub struct Fingerprint {
    pid: i32,
    backend_start: String,
    xmax: i64,
}

fn relation_state(row: &Row) -> RelationState {
    RelationState {
        relation: row.get("relation"),
        schema_name: row.get("schema_name"),
        relation_name: row.get("relation_name"),
        kind: row.get::<_, &str>("kind").chars().next().unwrap_or_default(),
        access_method: row.get("access_method"),
        tablespace: row.get("tablespace"),
        filenode: row.get("filenode"),
        columns: row.get::<_, Option<_>>("columns").unwrap_or_default(),
        parents: row.get::<_, Option<_>>("parents").unwrap_or_default(),
    }
}
