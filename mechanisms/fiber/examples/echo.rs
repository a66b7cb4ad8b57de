//! An echo server with a fiber for each connection, and clients that are fibers too, all on one
//! thread: `cargo run -p handover-fiber --example fiber-echo`.

use handover_fiber::{Config, Runtime, readable, spawn, spawn_detached, writable};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

const CLIENTS_COUNT: usize = 100;
const MESSAGES_COUNT: usize = 100;

/// Socket whose operations block the calling fiber.
struct Connection(TcpStream);

impl Connection {
    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self(stream))
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        repeat_if_blocked(|| (&self.0).read(buffer), || readable(&self.0))
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        repeat_if_blocked(|| (&self.0).write(bytes), || writable(&self.0))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Calls `operation`; while it would block, calls `wait` and then `operation` again.
fn repeat_if_blocked<T>(
    mut operation: impl FnMut() -> io::Result<T>,
    wait: impl Fn() -> io::Result<()>,
) -> io::Result<T> {
    loop {
        match operation() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait()?,
            done => return done,
        }
    }
}

/// Accepts connections; a fiber for each connection echoes the received data.
fn serve(listener: &TcpListener) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    listener.set_nonblocking(true)?;
    for _ in 0..CLIENTS_COUNT {
        let (stream, _) = repeat_if_blocked(|| listener.accept(), || readable(listener))?;
        let mut connection = Connection::new(stream)?;
        spawn_detached(move || {
            let mut buffer = [0; 64];
            while let Ok(count @ 1..) = connection.read(&mut buffer) {
                if connection.write_all(&buffer[..count]).is_err() {
                    return;
                }
            }
        })?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Runtime::new(Config::default())?; // one worker
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = runtime.spawn(move || serve(&listener))?;
    let clients = runtime.spawn(move || {
        let ask = move || {
            let mut connection = Connection::new(TcpStream::connect(address)?)?;
            for number in 0..MESSAGES_COUNT {
                let mut echo = [0; 8];
                connection.write_all(&number.to_ne_bytes())?;
                connection.read_exact(&mut echo)?;
                assert_eq!(usize::from_ne_bytes(echo), number);
            }
            Ok::<(), io::Error>(())
        };
        let clients: Vec<_> = (0..CLIENTS_COUNT).map(|_| spawn(ask)).collect();
        clients.into_iter().try_for_each(|client| {
            client.expect("cannot spawn a client").join().expect("a client panicked")
        })
    })?;
    clients.join()??;
    server.join()?.map_err(|error| error as Box<dyn std::error::Error>)?;
    println!("{CLIENTS_COUNT} clients got {MESSAGES_COUNT} echoes each");
    Ok(())
}
