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
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Config, Connection, CopyOutStream, Error, NoTls, Row, Socket};

/// How many COPYs are asked for before the first of them is read.
const AHEAD: usize = 16;

/// How long a server is waited for that is to end what it runs, or to take leave. It may be out of
/// reach, and whoever gives up must come to his own end.
const PATIENCE: Duration = Duration::from_secs(2);

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
    /// It has taken longer than it may.
    #[error("no answer within {} s", .0.as_secs_f64())]
    Late(Duration),
}

/// Ends what a connection runs, by a connection of its own.
#[derive(Clone)]
pub struct CancelToken(tokio_postgres::CancelToken);

type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

impl Client {
    /// Connects, without TLS. A server that has taken the connection reads its catalogs before it
    /// says so, and waits for their locks: `limit` is for that, too, which the timeout of the
    /// configuration is not.
    ///
    /// # Errors
    ///
    /// No server, one that refuses, or one that takes too long.
    pub fn connect(config: &Config, limit: Option<Duration>) -> Result<Self, ConnectError> {
        let runtime = runtime()?;
        let connected = match limit {
            None => runtime.block_on(config.connect(NoTls)),
            Some(limit) => {
                match runtime.block_on(async { timeout(limit, config.connect(NoTls)).await }) {
                    Ok(connected) => connected,
                    Err(_) => {
                        // It may be a name server that is waited for, in a thread.
                        runtime.shutdown_background();
                        return Err(ConnectError::Late(limit));
                    }
                }
            }
        };
        let (client, connection) = connected?;
        let token = client.cancel_token();
        Ok(Self { client, line: Line { connection, broken: None, token, runtime } })
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

/// Asks the server to end what the sessions run, all at once. One that runs nothing goes on;
/// nothing happens either if the server cannot be reached in a moment.
pub fn cancel(tokens: impl IntoIterator<Item = CancelToken>) {
    let Ok(runtime) = runtime() else { return };
    let cancels: Vec<_> = tokens
        .into_iter()
        .map(|CancelToken(token)| {
            runtime.spawn(async move { timeout(PATIENCE, token.cancel_query(NoTls)).await })
        })
        .collect();
    runtime.block_on(async {
        for cancel in cancels {
            let _ = cancel.await;
        }
    });
    runtime.shutdown_background();
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// What carries requests and answers.
struct Line {
    connection: Connection<Socket, NoTlsStream>,
    /// What has ended the connection while there was still something to be taken from it.
    broken: Option<Error>,
    /// Ends what the server runs for this connection.
    token: tokio_postgres::CancelToken,
    runtime: Runtime,
}

impl Line {
    /// Serves the connection until there is an answer to a new request.
    fn block_on<T>(&mut self, answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.hear()?;
        let mut answer = pin!(answer);
        self.serve(|context| answer.as_mut().poll(context))
    }

    /// Hears what the server has said of its own accord: where it has ended the connection it
    /// has told why, and to write first would only find that it does not listen any more.
    fn hear(&mut self) -> Result<(), Error> {
        let Self { connection, broken, runtime, .. } = self;
        if let Some(error) = broken.take() {
            return Err(error);
        }
        runtime.block_on(async {
            // Lets the runtime look at the socket.
            yield_now().await;
            poll_fn(|context| match poll_line(connection, context) {
                Poll::Ready(error) => Poll::Ready(Err(error)),
                Poll::Pending => Poll::Ready(Ok(())),
            })
            .await
        })
    }

    /// Serves the connection until there is an answer. What has come is taken before the
    /// connection is looked at: when the server ends it, its last words, with the reason, and the
    /// end of the line can come at once.
    fn serve<T>(
        &mut self,
        mut answer: impl FnMut(&mut Context<'_>) -> Poll<Result<T, Error>>,
    ) -> Result<T, Error> {
        let Self { connection, broken, runtime, .. } = self;
        runtime.block_on(poll_fn(|context| {
            if let Poll::Ready(answer) = answer(context) {
                return Poll::Ready(answer);
            }
            if broken.is_none()
                && let Poll::Ready(error) = poll_line(connection, context)
            {
                *broken = Some(error);
            }
            match (answer(context), broken.take()) {
                (Poll::Ready(Err(said)), Some(_)) if said.code().is_some() => {
                    Poll::Ready(Err(said))
                }
                (Poll::Ready(Ok(answer)), error) => {
                    *broken = error;
                    Poll::Ready(Ok(answer))
                }
                (_, Some(error)) => Poll::Ready(Err(error)),
                (answer, None) => answer,
            }
        }))
    }
}

/// Carries on what is to be sent or has come; ready with what has ended the connection.
fn poll_line(
    connection: &mut Connection<Socket, NoTlsStream>,
    context: &mut Context<'_>,
) -> Poll<Error> {
    // What the server tells of its own accord, such as notices, is passed over.
    while let Poll::Ready(Some(message)) = connection.poll_message(context) {
        if let Err(error) = message {
            return Poll::Ready(error);
        }
    }
    Poll::Pending
}

impl Drop for Line {
    fn drop(&mut self) {
        // Says good-bye, and takes in what the server still sends before it reads that: it would
        // log a client that goes away silently. Whether it hears us makes no difference, but it
        // may have been asked for a lot, or not be there any more.
        let Self { connection, token, runtime, .. } = self;
        runtime.block_on(async {
            for _ in 0..3 {
                if timeout(PATIENCE, &mut *connection).await.is_ok() {
                    break;
                }
                let _ = timeout(PATIENCE, token.cancel_query(NoTls)).await;
            }
        });
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
        self.tell_the_cause();
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

    /// A statement that the server could not prepare has failed the transaction before the
    /// turn of those in front of it, which only say so: puts what tells the cause before them.
    fn tell_the_cause(&mut self) {
        let code = |asked: &Asked<'_>| match asked {
            Asked::Answered(Err(error)) => error.code().cloned(),
            _ => None,
        };
        let is_effect = |code: &SqlState| *code == SqlState::IN_FAILED_SQL_TRANSACTION;
        let front = self.asked.front().and_then(|(_, asked)| code(asked));
        if !front.is_some_and(|front| is_effect(&front)) {
            return;
        }
        let cause = self
            .asked
            .iter()
            .position(|(_, asked)| code(asked).is_some_and(|code| !is_effect(&code)));
        if let Some(cause) = cause.and_then(|cause| self.asked.remove(cause)) {
            self.asked.push_front(cause);
        }
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
