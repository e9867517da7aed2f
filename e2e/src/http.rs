//! The smallest HTTP client that will do: one GET, one answer.

use anyhow::{Context as _, Result, anyhow};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: String,
}

impl Answer {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&String> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v)
    }
}

/// Sends a GET on a connection of its own.
///
/// # Errors
/// When there is no whole answer within `limit`.
pub async fn get(address: &str, path: &str, limit: Duration) -> Result<Answer> {
    tokio::time::timeout(limit, exchange(address, path))
        .await
        .with_context(|| format!("http://{address}{path}: no answer within {limit:?}"))?
        .with_context(|| format!("http://{address}{path}"))
}

/// As [`get`], with a limit of its own for the connection: a dead address says nothing.
///
/// # Errors
/// When there is no connection within `connect`, or no whole answer within `limit`.
pub async fn get_soon(address: &str, path: &str, connect: Duration, limit: Duration) -> Result<Answer> {
    let stream = tokio::time::timeout(connect, TcpStream::connect(address))
        .await
        .with_context(|| format!("http://{address}: no connection within {connect:?}"))??;
    tokio::time::timeout(limit, ask(stream, address, path))
        .await
        .with_context(|| format!("http://{address}{path}: no answer within {limit:?}"))?
}

async fn exchange(address: &str, path: &str) -> Result<Answer> {
    ask(TcpStream::connect(address).await?, address, path).await
}

async fn ask(mut stream: TcpStream, address: &str, path: &str) -> Result<Answer> {
    stream.set_nodelay(true)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = vec![];
    stream.read_to_end(&mut bytes).await?;
    parse(&String::from_utf8(bytes)?)
}

fn parse(text: &str) -> Result<Answer> {
    let (head, body) = text
        .split_once("\r\n\r\n")
        .ok_or_else(|| anyhow!("no head: {text:?}"))?;
    let mut lines = head.lines();
    let status = lines
        .next()
        .and_then(|l| l.split_whitespace().nth(1))
        .and_then(|s| s.parse().ok())
        .ok_or_else(|| anyhow!("no status: {head:?}"))?;
    let headers: Vec<_> = lines
        .filter_map(|l| l.split_once(':'))
        .map(|(n, v)| (n.trim().to_ascii_lowercase(), v.trim().to_owned()))
        .collect();
    let chunked = headers
        .iter()
        .any(|(n, v)| n == "transfer-encoding" && v.contains("chunked"));
    Ok(Answer {
        status,
        headers,
        body: if chunked { unchunk(body)? } else { body.to_owned() },
    })
}

fn unchunk(mut rest: &str) -> Result<String> {
    let mut out = String::new();
    loop {
        let (size, tail) = rest
            .split_once("\r\n")
            .ok_or_else(|| anyhow!("a chunk without size"))?;
        let size = usize::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16)?;
        if size == 0 {
            return Ok(out);
        }
        out.push_str(tail.get(..size).ok_or_else(|| anyhow!("a short chunk"))?);
        rest = tail.get(size + 2..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn answers_are_read() {
        let a = parse("HTTP/1.1 200 OK\r\nETag: \"3\"\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n").unwrap();
        assert_eq!((a.status, a.body.as_str()), (200, "abcde"));
        assert_eq!(a.header("etag").unwrap(), "\"3\"");
        assert_eq!(parse("HTTP/1.1 304 Not Modified\r\n\r\n").unwrap().status, 304);
        assert!(parse("nonsense").is_err());
    }
}
