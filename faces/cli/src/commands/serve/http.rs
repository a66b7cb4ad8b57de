//! Requests and responses of HTTP/1.1, one of each for a connection.

use percent_encoding::percent_decode_str;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Maximum size of a request in bytes.
const REQUEST_BYTES_MAX: usize = 1 << 14;
/// Maximum number of headers of a request.
const HEADERS_MAX: usize = 64;
/// Maximum time from the start of a connection until its request has arrived.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);
/// Maximum time for which a response is written.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Seconds after which a browser reloads a page of an unfinished run.
const REFRESH_SECONDS: &str = "3";

/// HTTP request with decoded parameters.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    /// `true` if the method is POST; otherwise it is GET.
    pub(super) is_post: bool,
    /// Path without the query.
    pub(super) path: String,
    /// Names and values in the query, or in the form in the body.
    parameters: Vec<(String, String)>,
    /// Value of the header `Host`.
    pub(super) host: String,
    /// Value of the header `Origin`; empty if there is none.
    pub(super) origin: String,
    /// Value of the header `Cookie`.
    pub(super) cookies: String,
}

impl Request {
    /// Returns the first parameter with this name; `None` if there is none.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|it| it.0 == name).map(|it| it.1.as_str())
    }

    /// Returns the first parameter with this name; an error if there is none.
    pub(super) fn required(&self, name: &str) -> anyhow::Result<&str> {
        self.parameter(name).ok_or_else(|| anyhow::anyhow!("the parameter {name} is missing"))
    }
}

/// Result of parsing the bytes received so far.
#[derive(Debug, PartialEq, Eq)]
enum ParsedRequest {
    /// The bytes contain a whole request.
    Complete(Request),
    /// More bytes are needed.
    Incomplete,
    /// The bytes are not a valid request. Contains the status of the response.
    Refused(&'static str),
}

/// Parses a request with its body.
fn parse(bytes: &[u8]) -> ParsedRequest {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut headers);
    let head_bytes = match head.parse(bytes) {
        Ok(httparse::Status::Complete(head_bytes)) => head_bytes,
        Ok(httparse::Status::Partial) => return ParsedRequest::Incomplete,
        Err(_) => return ParsedRequest::Refused("400 Bad Request"),
    };
    let is_post = match head.method {
        Some("GET") => false,
        Some("POST") => true,
        _ => return ParsedRequest::Refused("405 Method Not Allowed"),
    };
    let header = |name: &str| {
        let found = head.headers.iter().find(|it| it.name.eq_ignore_ascii_case(name));
        found.and_then(|it| std::str::from_utf8(it.value).ok()).unwrap_or_default()
    };
    let target = head.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let body_bytes = match header("content-length") {
        "" => 0,
        length => match length.parse::<usize>() {
            Ok(length) if length <= REQUEST_BYTES_MAX => length,
            _ => return ParsedRequest::Refused("413 Content Too Large"),
        },
    };
    let Some(body) = bytes[head_bytes..].get(..body_bytes) else {
        return ParsedRequest::Incomplete;
    };
    let form = if is_post { std::str::from_utf8(body).unwrap_or_default() } else { query };
    ParsedRequest::Complete(Request {
        is_post,
        path: path.to_string(),
        parameters: parameters(form),
        host: header("host").to_string(),
        origin: header("origin").to_string(),
        cookies: header("cookie").to_string(),
    })
}

/// Decodes parameters in the encoding of HTML forms.
fn parameters(form: &str) -> Vec<(String, String)> {
    let decode =
        |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name), decode(value))
    };
    form.split('&').filter(|text| !text.is_empty()).map(pair).collect()
}

/// HTTP response. The connection is closed after it.
#[derive(Debug)]
pub(super) struct Response {
    /// Code and text of the status, such as `200 OK`.
    status: &'static str,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl Response {
    fn new(status: &'static str, content_type: &str, body: String) -> Self {
        Self { status, headers: vec![("Content-Type", content_type.to_string())], body }
    }

    pub(super) fn html(page: String) -> Self {
        Self::new("200 OK", "text/html; charset=utf-8", page)
    }

    pub(super) fn error(status: &'static str, text: &str) -> Self {
        Self::new(status, "text/plain; charset=utf-8", format!("{text}\n"))
    }

    /// Returns a response that directs the browser to another page.
    pub(super) fn see_other(path: &str) -> Self {
        Self::error("303 See Other", path).with_header("Location", path.to_string())
    }

    pub(super) fn with_header(mut self, name: &'static str, value: String) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Makes the browser reload the page after some seconds if `is_changing`.
    pub(super) fn refreshed_if(self, is_changing: bool) -> Self {
        match is_changing {
            true => self.with_header("Refresh", REFRESH_SECONDS.to_string()),
            false => self,
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut text = format!("HTTP/1.1 {}\r\n", self.status);
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        text += &format!(
            "Content-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\nReferrer-Policy: same-origin\r\n\
             X-Content-Type-Options: nosniff\r\nContent-Security-Policy: default-src 'none'; \
             style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; form-action 'self'; \
             frame-ancestors 'none'\r\n\r\n",
            self.body.len()
        );
        text += &self.body;
        text.into_bytes()
    }
}

/// Reads a request, and writes its response. A connection that fails or takes too long is closed.
pub(super) fn serve_connection(stream: TcpStream, respond: impl FnOnce(&Request) -> Response) {
    // An error is that of a connection that the browser has closed.
    let _ = try_serve_connection(stream, (REQUEST_TIMEOUT, RESPONSE_TIMEOUT), respond);
}

/// Does [`serve_connection`] with these time limits for the request and the response.
fn try_serve_connection(
    mut stream: TcpStream,
    (request_timeout, response_timeout): (Duration, Duration),
    respond: impl FnOnce(&Request) -> Response,
) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    // One limit for all reads: a browser that sends a byte from time to time keeps its connection
    // no longer.
    let deadline = Instant::now() + request_timeout;
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    let response = loop {
        match parse(&bytes) {
            ParsedRequest::Complete(request) => break respond(&request),
            ParsedRequest::Refused(status) => break Response::error(status, status),
            ParsedRequest::Incomplete if bytes.len() > REQUEST_BYTES_MAX => {
                break Response::error("413 Content Too Large", "the request is too long");
            }
            ParsedRequest::Incomplete => {}
        }
        stream.set_read_timeout(Some(time_left(deadline)?))?;
        match stream.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    };
    let deadline = Instant::now() + response_timeout;
    let bytes = response.to_bytes();
    let mut unsent = &bytes[..];
    while !unsent.is_empty() {
        stream.set_write_timeout(Some(time_left(deadline)?))?;
        match stream.write(unsent) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => unsent = &unsent[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the time until `deadline`; an error if it has passed.
fn time_left(deadline: Instant) -> io::Result<Duration> {
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn request(path: &str, parameters: &[(&str, &str)]) -> Request {
        let parameters = parameters.iter().map(|it| (it.0.to_string(), it.1.to_string())).collect();
        Request { path: path.to_string(), parameters, host: "h".to_string(), ..Request::default() }
    }

    #[test]
    fn get_and_post_are_parsed_once_complete() {
        let get = b"GET /compare?a=x%2Fy&b=%2D1+z HTTP/1.1\r\nHost: h\r\n\r\n";
        let expected = request("/compare", &[("a", "x/y"), ("b", "-1 z")]);
        assert_eq!(parse(get), ParsedRequest::Complete(expected));
        let post = b"POST /tag?run=9 HTTP/1.1\r\nHOST: h\r\ncontent-length: 10\r\n\r\nrun=1&name";
        let tag = request("/tag", &[("run", "1"), ("name", "")]);
        for end in 0..post.len() {
            assert_eq!(parse(&post[..end]), ParsedRequest::Incomplete, "{end}");
        }
        assert_eq!(parse(post), ParsedRequest::Complete(Request { is_post: true, ..tag }));
    }

    /// Returns both ends of a connection.
    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let address = listener.local_addr().expect("the address of a listener");
        let browser = TcpStream::connect(address).expect("connect");
        (browser, listener.accept().expect("accept a connection").0)
    }

    #[test]
    fn browser_that_sends_a_byte_from_time_to_time_is_disconnected() {
        let (mut browser, stream) = connection();
        let is_served = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let limits = (Duration::from_millis(200), RESPONSE_TIMEOUT);
                let served = try_serve_connection(stream, limits, |_| panic!("a whole request"));
                assert!(served.is_err());
                // Relaxed: the flag publishes no other data.
                is_served.store(true, Ordering::Relaxed);
            });
            // Hundred times as long as the limit, and less than the longest request.
            for _ in 0..2000 {
                // Relaxed: as above.
                if is_served.load(Ordering::Relaxed) || browser.write_all(b"G").is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            let is_served = is_served.load(Ordering::Relaxed); // Relaxed: as above.
            drop(browser); // Ends the server's thread.
            assert!(is_served, "the connection stays open while bytes arrive");
        });
    }

    #[test]
    fn browser_that_does_not_read_its_response_is_disconnected() {
        let (mut browser, stream) = connection();
        browser.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").expect("send the request");
        let limits = (REQUEST_TIMEOUT, Duration::from_millis(200));
        let page = |_: &Request| Response::html("x".repeat(1 << 26));
        assert!(try_serve_connection(stream, limits, page).is_err());
    }

    #[test]
    fn other_methods_long_bodies_and_rubbish_are_refused() {
        for (bytes, status) in [
            (&b"PUT / HTTP/1.1\r\nHost: h\r\n\r\n"[..], "405 Method Not Allowed"),
            (b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", "413 Content Too Large"),
            (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "413 Content Too Large"),
            (b"\x16\x03\x01\x00\xff rubbish", "400 Bad Request"),
        ] {
            assert_eq!(parse(bytes), ParsedRequest::Refused(status));
        }
    }
}
