//! The server, which transfers the data.

use super::{Bandwidth, Prepare, TransferDirection, cannot_allocate, fill, first_wrong};
use anyhow::Context as _;
use handover_base::clock;
use handover_program::exit::{self, to_usage_error};
use handover_rpc::{
    Bulk, BulkError, BulkHandle, BulkMemory, BulkPart, BulkPath, Config, Context, Endpoint,
    Failure, MemoryError, Peer, Rights, Transfer,
};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// State of the server between calls.
pub struct BandwidthServer {
    cursor: Arc<BufferCursor>,
    /// Maximum number of transfers in flight, of all threads together.
    concurrency: u64,
    threads_count: u64,
    /// `true` if client and server each copy one half of each transfer.
    are_transfers_halved: bool,
    config: Config,
    /// Description of the client's buffer; `None` before the call `prepare`.
    prepared: Option<PreparedTransfer>,
    /// Threads for transfers; empty if the serving thread transfers.
    workers: Vec<TransferWorker>,
    /// Number of bytes moved in the last timed period.
    moved_bytes: u64,
}

/// Description of the client's buffer, for one endpoint of the server.
#[derive(Clone)]
struct PreparedTransfer {
    /// Arguments of the client's call `prepare`.
    client: Prepare,
    /// Handle of the server's buffer, for the client's half of each transfer; `None` without
    /// halves.
    own_handle: Option<BulkHandle>,
}

impl PreparedTransfer {
    fn new(
        client: Prepare,
        ends: &mut impl Bulk,
        cursor: &BufferCursor,
        halves: bool,
    ) -> Result<Self, MemoryError> {
        let register = || ends.register_memory(&cursor.memory, Rights::ReadWrite);
        Ok(Self { client, own_handle: halves.then(register).transpose()? })
    }

    /// Advances the cursor, and returns the part that the next transfer copies.
    fn next_part(&self, cursor: &BufferCursor) -> BulkPart {
        let at = cursor.next_offset();
        let part = BulkPart::new(cursor.xfer_bytes).offsets(self.client.base_offset + at, at);
        self.own_handle.as_ref().map_or(part, |handle| part.halved(handle))
    }
}

/// Server's buffer, with the position of the next transfer.
struct BufferCursor {
    memory: BulkMemory,
    /// Size of a transfer, and of a piece.
    xfer_bytes: u64,
    pieces_count: u64,
    /// Number of transfers started in the current period. Modulo `pieces_count`, it is the index of
    /// the next piece.
    started_count: AtomicU64,
}

impl BufferCursor {
    /// Returns the offset of the next piece, and moves on to the piece after it. The first piece
    /// follows the last one.
    fn next_offset(&self) -> u64 {
        // Relaxed: a counter; no other data depends on its order.
        self.started_count.fetch_add(1, Ordering::Relaxed) % self.pieces_count * self.xfer_bytes
    }
}

/// Converts an error to the failure of a call.
fn to_failure(error: impl std::fmt::Display) -> Failure {
    Failure::new(1, error.to_string())
}

impl BandwidthServer {
    /// Allocates the server's buffer.
    pub fn new(args: &Bandwidth) -> anyhow::Result<Self> {
        let bytes = usize::try_from(args.buffer_bytes)?;
        let memory = match &args.file {
            Some(file) => {
                let folder = match Path::new(file).parent() {
                    Some(folder) if folder != Path::new("") => folder,
                    _ => Path::new("."),
                };
                BulkMemory::in_folder(folder, bytes).map_err(|error| {
                    to_usage_error(format!(
                        "-m {file}: cannot create a file in its folder: {}; name a file in a folder \
                         with {bytes} free bytes in which files can be created",
                        exit::format_chain(&error.into())
                    ))
                })?
            }
            None => BulkMemory::shared(bytes).with_context(|| cannot_allocate(bytes))?,
        };
        Ok(Self {
            cursor: Arc::new(BufferCursor {
                memory,
                xfer_bytes: args.xfer_bytes,
                pieces_count: args.buffer_bytes / args.xfer_bytes,
                started_count: AtomicU64::new(0),
            }),
            concurrency: args.concurrency,
            threads_count: args.threads,
            are_transfers_halved: args.halves,
            config: Config::default(),
            prepared: None,
            workers: Vec::new(),
            moved_bytes: 0,
        })
    }

    /// Registers the procedures of the server.
    pub fn register(mut self, endpoint: &mut Endpoint) -> anyhow::Result<()> {
        self.config = endpoint.config().clone();
        let server = Arc::new(Mutex::new(self));
        let it = Arc::clone(&server);
        endpoint.register("prepare", 0, move |context, prepare: Prepare| {
            locked(&it).prepare(context, prepare)
        })?;
        let it = Arc::clone(&server);
        endpoint.register("transfer", 0, move |context, (op, ns): (TransferDirection, u64)| {
            locked(&it).transfer(context, op, ns)
        })?;
        let it = Arc::clone(&server);
        endpoint.register("check", 0, move |_, ()| locked(&it).check())?;
        endpoint.register("stop", 0, move |context: &mut Context<'_>, ()| {
            // The worker threads disconnect before the client unregisters its memory.
            locked(&server).workers.clear();
            context.stop();
            Ok(())
        })?;
        Ok(())
    }

    /// Starts the threads; each transfers once from the client's memory. Returns the path that the
    /// data took.
    fn prepare(&mut self, context: &mut Context<'_>, prepare: Prepare) -> Result<String, Failure> {
        let peer = context.peer();
        let first = BulkPart::new(self.cursor.xfer_bytes).offsets(prepare.base_offset, 0);
        context.pull(peer, &prepare.handle, &self.cursor.memory, first).map_err(to_failure)?;
        for _ in 0..self.threads_count {
            let worker = TransferWorker::start(
                &self.config,
                &self.cursor,
                prepare.clone(),
                self.are_transfers_halved,
            );
            self.workers.push(worker);
        }
        receive_results(&self.workers)?;
        let path = context.bulk_path(peer, &prepare.handle);
        let prepared =
            PreparedTransfer::new(prepare, context, &self.cursor, self.are_transfers_halved);
        self.prepared = Some(prepared.map_err(to_failure)?);
        Ok(match path {
            Some(BulkPath::Mapped) => "mapped",
            Some(BulkPath::Process) => "process",
            Some(BulkPath::Remote) => "remote",
            Some(BulkPath::Messages) | None => "messages",
        }
        .into())
    }

    /// Transfers for `ns` nanoseconds; returns the number of bytes moved.
    fn transfer(
        &mut self,
        context: &mut Context<'_>,
        op: TransferDirection,
        ns: u64,
    ) -> Result<u64, Failure> {
        let Some(prepared) = &self.prepared else {
            return Err(to_failure("`transfer` was called before `prepare`"));
        };
        // Relaxed: no thread transfers yet.
        self.cursor.started_count.store(0, Ordering::Relaxed);
        let until_ns = clock::now_ns() + ns;
        self.moved_bytes = if self.workers.is_empty() {
            let peer = context.peer();
            let job = TransferJob { op, until_ns, concurrency: self.concurrency };
            job.transfer_pieces(context, peer, prepared, &self.cursor).map_err(to_failure)?
        } else {
            // The remainder is spread over the first threads.
            let (count, threads) = (self.concurrency, self.workers.len() as u64);
            for (number, worker) in (0..).zip(&self.workers) {
                let concurrency = count / threads + u64::from(number < count % threads);
                // Fails only if the thread has ended, and then it has no result either.
                let _ = worker.jobs.send(TransferJob { op, until_ns, concurrency });
            }
            receive_results(&self.workers)?
        };
        Ok(self.moved_bytes)
    }

    /// Checks the pulled data, and fills the buffer for the pushes.
    fn check(&mut self) -> Result<(), Failure> {
        let BufferCursor { memory, xfer_bytes, pieces_count, .. } = &*self.cursor;
        let bytes = self.moved_bytes.min(xfer_bytes * pieces_count);
        if let Some(offset) = first_wrong((memory, 0), bytes, 0) {
            return Err(to_failure(format!("the pulled data is wrong, first at byte {offset}")));
        }
        fill((memory, 0), memory.len_bytes(), 1);
        Ok(())
    }
}

/// Locks the server's state.
fn locked(server: &Mutex<BandwidthServer>) -> std::sync::MutexGuard<'_, BandwidthServer> {
    server.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Order to transfer in one direction until `until_ns`.
struct TransferJob {
    op: TransferDirection,
    /// Time from which on no further transfer is started.
    until_ns: u64,
    /// Maximum number of transfers in flight.
    concurrency: u64,
}

impl TransferJob {
    /// Transfers pieces until `until_ns`; returns the number of bytes moved.
    fn transfer_pieces(
        &self,
        ends: &mut impl Bulk,
        peer: Peer,
        prepared: &PreparedTransfer,
        cursor: &BufferCursor,
    ) -> Result<u64, BulkError> {
        if self.concurrency > 1 {
            let mut under_way = VecDeque::new();
            let ended =
                self.transfer_pieces_concurrently(ends, peer, prepared, cursor, &mut under_way);
            // After an error, the others must not go on during the next job.
            under_way.into_iter().for_each(|transfer| ends.cancel_transfer(transfer));
            return ended;
        }
        let (handle, mut bytes) = (&prepared.client.handle, 0);
        while self.concurrency == 1 && clock::now_ns() < self.until_ns {
            match self.op {
                TransferDirection::Pull => {
                    ends.pull(peer, handle, &cursor.memory, prepared.next_part(cursor))?
                }
                TransferDirection::Push => {
                    ends.push(peer, handle, &cursor.memory, prepared.next_part(cursor))?
                }
            }
            bytes += cursor.xfer_bytes;
        }
        Ok(bytes)
    }

    /// Transfers pieces until `until_ns`, with several transfers in flight. After an error,
    /// unfinished transfers stay in `under_way`.
    fn transfer_pieces_concurrently(
        &self,
        ends: &mut impl Bulk,
        peer: Peer,
        prepared: &PreparedTransfer,
        cursor: &BufferCursor,
        under_way: &mut VecDeque<Transfer>,
    ) -> Result<u64, BulkError> {
        let (handle, mut bytes) = (&prepared.client.handle, 0);
        let memory = &cursor.memory;
        for _ in 0..self.concurrency {
            under_way.push_back(start_transfer(
                ends,
                self.op,
                peer,
                handle,
                memory,
                prepared.next_part(cursor),
            )?);
        }
        // Transfers with one peer end in the order of their start.
        while let Some(oldest) = under_way.pop_front() {
            ends.wait_transfer(oldest)?;
            bytes += cursor.xfer_bytes;
            if clock::now_ns() < self.until_ns {
                let part = prepared.next_part(cursor);
                under_way.push_back(start_transfer(ends, self.op, peer, handle, memory, part)?);
            }
        }
        Ok(bytes)
    }
}

/// Starts a transfer in the direction `op`, without waiting for its end.
fn start_transfer(
    ends: &mut impl Bulk,
    op: TransferDirection,
    peer: Peer,
    handle: &BulkHandle,
    memory: &BulkMemory,
    part: BulkPart,
) -> Result<Transfer, BulkError> {
    match op {
        TransferDirection::Pull => ends.start_pull(peer, handle, memory, part),
        TransferDirection::Push => ends.start_push(peer, handle, memory, part),
    }
}

/// Number of bytes that a job moved, or its error.
type JobResult = Result<u64, String>;

/// Thread for transfers, with its own endpoint. It exits when the job channel is closed.
struct TransferWorker {
    jobs: Sender<TransferJob>,
    /// Channel of the results of the jobs.
    results: Receiver<JobResult>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for TransferWorker {
    fn drop(&mut self) {
        self.jobs = channel().0;
        if let Some(thread) = self.thread.take() {
            // Errors have been reported through `results`; a panic is ignored here.
            let _ = thread.join();
        }
    }
}

/// Receives a result from each thread, and returns the sum or the first error. Results after an
/// error are received too, so that the next job does not receive them.
fn receive_results(workers: &[TransferWorker]) -> Result<u64, Failure> {
    let result =
        |worker: &TransferWorker| worker.results.recv().map_err(to_failure)?.map_err(to_failure);
    let results: Vec<_> = workers.iter().map(result).collect();
    results.into_iter().sum()
}

impl TransferWorker {
    /// Starts a thread that connects to the client, and then executes jobs. Its first result says
    /// whether it has connected.
    fn start(config: &Config, cursor: &Arc<BufferCursor>, prepare: Prepare, halves: bool) -> Self {
        let (jobs, its_jobs) = channel();
        let (its_results, results) = channel();
        let (config, cursor) = (config.clone(), Arc::clone(cursor));
        let work = move || {
            let reached = connect_and_check(config, &cursor, prepare, halves);
            let (mut endpoint, peer, prepared) = match reached {
                Ok(reached) => reached,
                Err(error) => return drop(its_results.send(Err(error.to_string()))),
            };
            // Sending fails only if the receiver, and with it the worker, is dropped.
            let _ = its_results.send(Ok(0));
            while let Ok(job) = its_jobs.recv() {
                let job: TransferJob = job;
                let ended = job.transfer_pieces(&mut endpoint, peer, &prepared, &cursor);
                let _ = its_results.send(ended.map_err(|error| error.to_string()));
            }
        };
        Self { jobs, results, thread: Some(std::thread::spawn(work)) }
    }
}

/// Connects to the client, and tests a transfer from the client's memory.
fn connect_and_check(
    config: Config,
    cursor: &BufferCursor,
    prepare: Prepare,
    halves: bool,
) -> anyhow::Result<(Endpoint, Peer, PreparedTransfer)> {
    let mut endpoint = Endpoint::new(config)?;
    let address = prepare.client.parse().context("the client has sent no valid address")?;
    let peer = endpoint.connect(&address)?;
    let part = BulkPart::new(8.min(cursor.xfer_bytes)).offsets(prepare.base_offset, 0);
    endpoint.pull(peer, &prepare.handle, &BulkMemory::plain(vec![0; 8]), part)?;
    let prepared = PreparedTransfer::new(prepare, &mut endpoint, cursor, halves)?;
    Ok((endpoint, peer, prepared))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_after_an_error_do_not_reach_the_next_job() {
        let (senders, workers): (Vec<_>, Vec<_>) = (0..3)
            .map(|_| {
                let (its_done, done) = channel::<JobResult>();
                (its_done, TransferWorker { jobs: channel().0, results: done, thread: None })
            })
            .unzip();
        let done = |results: [JobResult; 3]| {
            for (sender, result) in senders.iter().zip(results) {
                sender.send(result).expect("the receiver is open");
            }
            receive_results(&workers)
        };
        assert!(done([Ok(1), Err("it broke".into()), Ok(4)]).is_err());
        assert_eq!(done([Ok(10), Ok(20), Ok(40)]).ok(), Some(70));
        drop(senders);
        assert!(
            receive_results(&workers).is_err(),
            "threads have exited, but their sum is no error"
        );
    }
}
