//! Where the engines are, and engines of a test's own.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::sync::watch;

/// The PostgreSQL that tests share, without a database's name.
pub fn postgres_url() -> String {
    std::env::var("VINTEM_TEST_POSTGRES").unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432".into())
}

/// The Redis that tests share; each has a prefix of its own there.
pub fn redis_url() -> String {
    std::env::var("VINTEM_TEST_REDIS").unwrap_or_else(|_| "redis://127.0.0.1:6379".into())
}

/// A PostgreSQL of the test's own, to be taken away and brought back; it ends with the test.
#[derive(Debug)]
pub struct DedicatedPostgres {
    bin_dir: PathBuf,
    work_dir: PathBuf,
    port: u16,
    server_options: String,
}

impl DedicatedPostgres {
    pub fn start() -> anyhow::Result<Self> {
        Self::start_with_options("")
    }

    /// With further options of the server, such as `-c log_statement=all`.
    pub fn start_with_options(options: &str) -> anyhow::Result<Self> {
        let programs = find_newest_postgres_bin()?;
        let home = std::env::temp_dir().join(format!("vintem-postgres-{:016x}", rand::random::<u64>()));
        std::fs::create_dir(&home)?;
        let postgres =
            Self { bin_dir: programs, work_dir: home, port: find_free_port()?, server_options: options.to_owned() };
        // The server refuses to run as root.
        if is_root()? {
            run_command(Command::new("chown").arg("postgres").arg(&postgres.work_dir))?;
        }
        let data = postgres.data_dir();
        run_command(
            postgres
                .postgres_command("initdb")
                .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "-D"])
                .arg(data),
        )?;
        postgres.launch()?;
        Ok(postgres)
    }

    /// Without a database's name.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Starts it, and waits until it takes connections.
    pub fn launch(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        // After a kill its children may hold the shared memory for a moment still.
        while let Err(error) = self.try_start() {
            if began.elapsed() > Duration::from_secs(20) {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn try_start(&self) -> anyhow::Result<()> {
        let options =
            format!("-p {} -k '' -c listen_addresses=127.0.0.1 -c fsync=off {}", self.port, self.server_options);
        run_command(
            self.postgres_command("pg_ctl")
                .args(["-w", "-D"])
                .arg(self.data_dir())
                .arg("-l")
                .arg(self.work_dir.join("log"))
                .args(["-o", &options, "start"]),
        )
    }

    /// Everything that it has logged so far.
    pub fn read_log(&self) -> std::io::Result<Vec<u8>> {
        std::fs::read(self.work_dir.join("log"))
    }

    /// All that it holds, as `pg_dump` writes it.
    pub fn pg_dump(&self) -> anyhow::Result<Vec<u8>> {
        let dumped = self.postgres_command("pg_dump").arg(format!("{}/postgres", self.url())).output()?;
        anyhow::ensure!(dumped.status.success(), "{}", String::from_utf8_lossy(&dumped.stderr));
        Ok(dumped.stdout)
    }

    /// Ends it as an operator would who is in a hurry.
    pub fn stop(&self) -> anyhow::Result<()> {
        run_command(self.postgres_command("pg_ctl").args(["-w", "-m", "fast", "-D"]).arg(self.data_dir()).arg("stop"))
    }

    /// Ends it as a power cut would.
    pub fn kill(&self) -> anyhow::Result<()> {
        let pids = std::fs::read_to_string(self.data_dir().join("postmaster.pid"))?;
        let server = pids.lines().next().unwrap_or_default().trim().parse()?;
        // Its children end by themselves when it is gone.
        send_signal(server, "KILL")?;
        let began = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
            anyhow::ensure!(began.elapsed() < Duration::from_secs(10), "PostgreSQL still listens");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn data_dir(&self) -> PathBuf {
        self.work_dir.join("data")
    }

    fn postgres_command(&self, name: &str) -> Command {
        let program = self.bin_dir.join(name);
        let mut command = match is_root() {
            Ok(true) => {
                let mut command = Command::new("runuser");
                command.args(["-u", "postgres", "--"]).arg(program);
                command
            }
            _ => Command::new(program),
        };
        command.current_dir(&self.work_dir);
        command
    }
}

impl Drop for DedicatedPostgres {
    fn drop(&mut self) {
        // It holds nothing that anybody misses.
        let _ = run_command(
            self.postgres_command("pg_ctl").args(["-m", "immediate", "-D"]).arg(self.data_dir()).arg("stop"),
        );
        if let Err(error) = std::fs::remove_dir_all(&self.work_dir) {
            eprintln!("{} was left behind: {error}", self.work_dir.display());
        }
    }
}

/// Debian keeps the programs of each version apart.
fn find_newest_postgres_bin() -> anyhow::Result<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql")?.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
    versions.max().ok_or_else(|| anyhow::anyhow!("no PostgreSQL is installed"))
}

fn is_root() -> anyhow::Result<bool> {
    Ok(Command::new("id").arg("-u").output()?.stdout.trim_ascii() == b"0")
}

fn run_command(command: &mut Command) -> anyhow::Result<()> {
    // A server that stays would keep a pipe open for ever.
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    anyhow::ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

/// Stands between a client and a server, and can fall silent as a broken network does: nothing is closed, and nothing
/// comes any more.
#[derive(Debug)]
pub struct TcpProxy {
    port: u16,
    is_cut: watch::Sender<bool>,
}

impl TcpProxy {
    /// To a port of this machine. Must be called within a runtime.
    pub async fn start(target: u16) -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
        let wire = Self { port: listener.local_addr()?.port(), is_cut: watch::Sender::new(false) };
        let is_cut = wire.is_cut.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(proxy_connection(client, target, is_cut.subscribe()));
            }
        });
        Ok(wire)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn cut(&self) {
        self.is_cut.send_replace(true);
    }

    /// New connections get through again. What was cut stays so: its packets are long lost.
    pub fn restore(&self) {
        self.is_cut.send_replace(false);
    }
}

async fn proxy_connection(mut client: TcpStream, target: u16, mut is_cut: watch::Receiver<bool>) {
    let talk = async {
        if let Ok(mut server) = TcpStream::connect(("127.0.0.1", target)).await {
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        }
    };
    // The cut first: what is sent after it never gets through.
    let was_cut = tokio::select! {
        biased;
        cut = is_cut.wait_for(|is_cut| *is_cut) => cut.is_ok(),
        () = talk => false,
    };
    if was_cut {
        // Held open, and never read.
        std::future::pending::<()>().await;
    }
}

/// Sends a signal, named as `kill` names it.
pub(crate) fn send_signal(process: u32, name: &str) -> anyhow::Result<()> {
    run_command(Command::new("kill").args([&format!("-{name}"), &process.to_string()]))
}

/// Below the ports that the system gives to clients: while a server is away nobody else gets its port, and nobody who
/// tries to reach it meets itself there.
pub fn find_free_port() -> std::io::Result<u16> {
    let mut last = std::io::Error::other("no port was tried");
    for _ in 0..100 {
        let port = rand::random_range(15_000..32_000);
        match TcpListener::bind(("127.0.0.1", port)) {
            Ok(_) => return Ok(port),
            Err(error) => last = error,
        }
    }
    Err(last)
}
