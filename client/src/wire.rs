//! A connection: blocking calls over an asynchronous driver, and COPYs that are asked for ahead.
//!
//! The protocol lets a client send a statement before the last one is answered. Where tables are
//! small and many that decides how fast they are read: to wait for every answer takes longer
//! than the rows. The driver sends ahead what is polled together; its own blocking front, the
//! crate `postgres`, does not let one do so.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Config, Connection, CopyOutStream, Error, NoTls, Row, Socket};

/// How many COPYs are asked for before the first of them is read.
const AHEAD: usize = 16;

/// A connection to a server. It is served while one of its calls runs, and only then.
pub struct Client {
    // Dropped first, which tells the line to end.
    client: tokio_postgres::Client,
    line: Line,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The system has no means left for one.
    #[error(transparent)]
    System(#[from] io::Error),
    /// What the server said, or the way to it.
    #[error(transparent)]
    Server(#[from] Error),
}

/// Ends what a connection runs, by a connection of its own.
#[derive(Clone)]
pub struct CancelToken(tokio_postgres::CancelToken);

type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

impl Client {
    /// Connects, without TLS.
    ///
    /// # Errors
    ///
    /// No server, or one that refuses.
    pub fn connect(config: &Config) -> Result<Self, ConnectError> {
        let runtime = runtime()?;
        let (client, connection) = runtime.block_on(config.connect(NoTls))?;
        Ok(Self { client, line: Line { connection, runtime } })
    }

    /// Runs statements that give nothing, all in one message.
    ///
    /// # Errors
    ///
    /// What the server says, and a lost connection; so it is for all calls.
    pub fn batch_execute(&mut self, statements: &str) -> Result<(), Error> {
        self.line.block_on(self.client.batch_execute(statements))
    }

    /// Runs a statement; gives the number of its rows.
    ///
    /// # Errors
    ///
    /// See [`batch_execute`](Self::batch_execute).
    pub fn execute(&mut self, statement: &str, parameters: Parameters<'_>) -> Result<u64, Error> {
        self.line.block_on(self.client.execute(statement, parameters))
    }

    /// Runs a query.
    ///
    /// # Errors
    ///
    /// See [`batch_execute`](Self::batch_execute).
    pub fn query(&mut self, query: &str, parameters: Parameters<'_>) -> Result<Vec<Row>, Error> {
        self.line.block_on(self.client.query(query, parameters))
    }

    /// Runs a query that has to give one row.
    ///
    /// # Errors
    ///
    /// See [`batch_execute`](Self::batch_execute).
    pub fn query_one(&mut self, query: &str, parameters: Parameters<'_>) -> Result<Row, Error> {
        self.line.block_on(self.client.query_one(query, parameters))
    }

    /// Runs a query that has to give one row or none.
    ///
    /// # Errors
    ///
    /// See [`batch_execute`](Self::batch_execute).
    pub fn query_opt(
        &mut self,
        query: &str,
        parameters: Parameters<'_>,
    ) -> Result<Option<Row>, Error> {
        self.line.block_on(self.client.query_opt(query, parameters))
    }

    /// Runs a `COPY ... TO STDOUT` statement.
    ///
    /// # Errors
    ///
    /// See [`batch_execute`](Self::batch_execute).
    pub fn copy(&mut self, statement: &str) -> Result<Rows<'_>, Error> {
        let Self { client, line } = self;
        let rows = line.block_on(copy_out(client, statement))?;
        Ok(Rows { line, rows: Box::pin(rows) })
    }

    /// Runs `COPY ... TO STDOUT` statements, each named by what stands before it. They are
    /// sent ahead, and run one after the other.
    pub fn copies<T, I>(&mut self, statements: I) -> Copies<'_, T, I>
    where
        I: Iterator<Item = (T, String)>,
    {
        let Self { client, line } = self;
        Copies { client, line, statements, asked: VecDeque::with_capacity(AHEAD) }
    }

    /// What ends this connection's statement from another thread.
    #[must_use]
    pub fn cancel_token(&self) -> CancelToken {
        CancelToken(self.client.cancel_token())
    }
}

impl CancelToken {
    /// Asks the server to end what it runs. If that is nothing, nothing happens; neither does it
    /// if the server cannot be reached.
    pub fn cancel(&self) {
        if let Ok(runtime) = runtime() {
            let _ = runtime.block_on(self.0.cancel_query(NoTls));
        }
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// What carries requests and answers.
struct Line {
    connection: Connection<Socket, NoTlsStream>,
    runtime: Runtime,
}

impl Line {
    /// Serves the connection until there is an answer.
    fn block_on<T>(&mut self, answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let mut answer = pin!(answer);
        self.serve(|context| answer.as_mut().poll(context))
    }

    fn serve<T>(
        &mut self,
        mut answer: impl FnMut(&mut Context<'_>) -> Poll<Result<T, Error>>,
    ) -> Result<T, Error> {
        let Self { connection, runtime } = self;
        runtime.block_on(poll_fn(|context| {
            // What the server tells of its own accord, such as notices, is passed over.
            while let Poll::Ready(Some(message)) = connection.poll_message(context) {
                if let Err(error) = message {
                    return Poll::Ready(Err(error));
                }
            }
            answer(context)
        }))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // Says good-bye, and takes in what the server still sends before it reads that: it would
        // log a client that goes away silently. Whether it hears us makes no difference.
        let Self { connection, runtime } = self;
        let _ = runtime.block_on(connection);
    }
}

/// COPYs that run one after the other.
pub struct Copies<'a, T, I> {
    client: &'a tokio_postgres::Client,
    line: &'a mut Line,
    statements: I,
    asked: VecDeque<(T, Asked<'a>)>,
}

/// A COPY that the server has been, or is being, asked for.
enum Asked<'a> {
    Waits(Pin<Box<dyn Future<Output = Result<CopyOutStream, Error>> + 'a>>),
    Answered(Result<CopyOutStream, Error>),
}

impl<'a, T, I> Copies<'a, T, I>
where
    I: Iterator<Item = (T, String)>,
{
    /// The next COPY, when the server has begun it, or why it has not. What the one before has
    /// left unread is passed over.
    pub fn next(&mut self) -> Option<(T, Result<Rows<'_>, Error>)> {
        let client = self.client;
        while self.asked.len() < AHEAD
            && let Some((of, statement)) = self.statements.next()
        {
            let answer = async move { copy_out(client, &statement).await };
            self.asked.push_back((of, Asked::Waits(Box::pin(answer))));
        }
        let asked = &mut self.asked;
        let served = self.line.serve(|context| {
            // All of them, in their order: what is polled is sent.
            for (_, asked) in asked.iter_mut() {
                if let Asked::Waits(answer) = asked
                    && let Poll::Ready(answer) = answer.as_mut().poll(context)
                {
                    *asked = Asked::Answered(answer);
                }
            }
            match asked.front() {
                Some((_, Asked::Waits(_))) => Poll::Pending,
                _ => Poll::Ready(Ok(())),
            }
        });
        let (of, asked) = self.asked.pop_front()?;
        let rows = match (served, asked) {
            (Ok(()), Asked::Answered(answer)) => answer,
            (Err(error), _) => Err(error),
            // It was served until this one was answered.
            (Ok(()), Asked::Waits(answer)) => self.line.block_on(answer),
        };
        let line = &mut *self.line;
        Some((of, rows.map(|rows| Rows { line, rows: Box::pin(rows) })))
    }
}

async fn copy_out(
    client: &tokio_postgres::Client,
    statement: &str,
) -> Result<CopyOutStream, Error> {
    let statement = client.prepare(statement).await?;
    client.copy_out(&statement).await
}

/// What one COPY gives.
pub struct Rows<'a> {
    line: &'a mut Line,
    rows: Pin<Box<CopyOutStream>>,
}

impl Rows<'_> {
    /// The next bytes; nothing at its end.
    ///
    /// # Errors
    ///
    /// See [`Client::batch_execute`].
    pub fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let Self { line, rows } = self;
        line.serve(|context| rows.as_mut().poll_next(context).map(Option::transpose))
    }
}
