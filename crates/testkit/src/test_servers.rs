//! URLs of the shared PostgreSQL and Redis, a dedicated PostgreSQL for tests that stop it, and a TCP proxy that can
//! simulate a broken network.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::sync::watch;

/// The PostgreSQL that tests share, without a database name.
pub fn postgres_url() -> String {
    std::env::var("VINTEM_TEST_POSTGRES").unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432".into())
}

/// The Redis that tests share; each test uses its own key prefix.
pub fn redis_url() -> String {
    std::env::var("VINTEM_TEST_REDIS").unwrap_or_else(|_| "redis://127.0.0.1:6379".into())
}

/// A PostgreSQL server for one test, which can stop and restart it. Dropping this stops the server.
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

    /// Passes further server options, such as `-c log_statement=all`.
    pub fn start_with_options(options: &str) -> anyhow::Result<Self> {
        let postgres = Self::prepare(options)?;
        let data_dir = postgres.data_dir();
        run_command(
            postgres
                .postgres_command("initdb")
                .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "-D"])
                .arg(data_dir),
        )?;
        postgres.launch()?;
        Ok(postgres)
    }

    /// A server without data, which does not run yet.
    fn prepare(options: &str) -> anyhow::Result<Self> {
        let bin_dir = find_newest_postgres_bin()?;
        let work_dir = std::env::temp_dir().join(format!("vintem-postgres-{:016x}", rand::random::<u64>()));
        std::fs::create_dir(&work_dir)?;
        let postgres = Self { bin_dir, work_dir, port: find_free_port()?, server_options: options.to_owned() };

        // The server refuses to run as root.
        if is_root()? {
            run_command(Command::new("chown").arg("postgres").arg(&postgres.work_dir))?;
        }
        Ok(postgres)
    }

    /// Starts a standby that follows the server at this port, and waits until it accepts connections.
    pub fn start_standby(primary_port: u16) -> anyhow::Result<Self> {
        let postgres = Self::prepare("")?;
        let primary = format!("postgres://postgres@127.0.0.1:{primary_port}");
        let mut command = postgres.postgres_command("pg_basebackup");
        command.args(["--checkpoint=fast", "--no-sync", "--write-recovery-conf", "-d", &primary, "-D"]);
        run_command(command.arg(postgres.data_dir()))?;
        postgres.launch()?;
        Ok(postgres)
    }

    /// Turns a standby into a primary, with what it has received so far.
    pub fn promote(&self) -> anyhow::Result<()> {
        run_command(self.postgres_command("pg_ctl").args(["-w", "-D"]).arg(self.data_dir()).arg("promote"))
    }

    /// Restarts the server at another port.
    pub fn move_to_port(&mut self, port: u16) -> anyhow::Result<()> {
        self.stop()?;
        self.port = port;
        self.launch()
    }

    /// Without a database name.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Starts the server and waits until it accepts connections.
    pub fn launch(&self) -> anyhow::Result<()> {
        let started = Instant::now();
        // After a kill, its child processes may keep the shared memory for a moment.
        while let Err(error) = self.try_start() {
            if started.elapsed() > Duration::from_secs(20) {
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

    /// Writes a file into the data directory, readable by the server alone.
    pub fn write_data_file(&self, name: &str, content: &str) -> anyhow::Result<()> {
        let path = self.data_dir().join(name);
        std::fs::write(&path, content)?;
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        if is_root()? {
            run_command(Command::new("chown").arg("postgres").arg(&path))?;
        }
        Ok(())
    }

    /// Everything the server has logged so far.
    pub fn read_log(&self) -> std::io::Result<Vec<u8>> {
        std::fs::read(self.work_dir.join("log"))
    }

    /// Dumps the whole `postgres` database with `pg_dump`.
    pub fn pg_dump(&self) -> anyhow::Result<Vec<u8>> {
        let output = self.postgres_command("pg_dump").arg(format!("{}/postgres", self.url())).output()?;
        anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(output.stdout)
    }

    /// A fast shutdown: open transactions are rolled back.
    pub fn stop(&self) -> anyhow::Result<()> {
        run_command(self.postgres_command("pg_ctl").args(["-w", "-m", "fast", "-D"]).arg(self.data_dir()).arg("stop"))
    }

    /// Kills the server without a shutdown, like a power cut.
    pub fn kill(&self) -> anyhow::Result<()> {
        let pid_file = std::fs::read_to_string(self.data_dir().join("postmaster.pid"))?;
        let pid = pid_file.lines().next().unwrap_or_default().trim().parse()?;
        // Its child processes exit on their own once it is gone.
        send_signal(pid, "KILL")?;

        let started = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
            anyhow::ensure!(started.elapsed() < Duration::from_secs(10), "PostgreSQL still listens");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Copies the running server's files, as `pg_basebackup` does, to a new directory beside them.
    pub fn take_base_backup(&self) -> anyhow::Result<PathBuf> {
        let backup = self.work_dir.join(format!("backup-{:08x}", rand::random::<u32>()));
        let mut command = self.postgres_command("pg_basebackup");
        command.args(["--checkpoint=fast", "--no-sync", "-d", &self.url(), "-D"]).arg(&backup);
        run_command(&mut command)?;
        Ok(backup)
    }

    /// Replaces all data of the stopped server by a base backup, which is used up.
    pub fn restore_base_backup(&self, backup: &Path) -> anyhow::Result<()> {
        std::fs::remove_dir_all(self.data_dir())?;
        std::fs::rename(backup, self.data_dir())?;
        Ok(())
    }

    /// Removes the data that a recovery has put aside.
    pub fn remove_former_data(&self) -> anyhow::Result<()> {
        for entry in std::fs::read_dir(&self.work_dir)? {
            let path = entry?.path();
            if path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("data.")) {
                std::fs::remove_dir_all(path)?;
            }
        }
        Ok(())
    }

    /// Runs one of PostgreSQL's programs, with the rights of its server.
    pub fn run_program(&self, name: &str, arguments: &[&str]) -> anyhow::Result<()> {
        run_command(self.postgres_command(name).args(arguments))
    }

    /// Runs a script with the rights of the server.
    pub fn run_script(&self, script: &Path, arguments: &[&Path]) -> anyhow::Result<()> {
        run_command(self.unprivileged_command(script).args(arguments))
    }

    pub fn work_dir(&self) -> &Path {
        &self.work_dir
    }

    pub fn data_dir(&self) -> PathBuf {
        self.work_dir.join("data")
    }

    fn postgres_command(&self, name: &str) -> Command {
        self.unprivileged_command(&self.bin_dir.join(name))
    }

    fn unprivileged_command(&self, program: &Path) -> Command {
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
        // Its data is disposable, so a failed stop doesn't matter.
        let _ = run_command(
            self.postgres_command("pg_ctl").args(["-m", "immediate", "-D"]).arg(self.data_dir()).arg("stop"),
        );
        if let Err(error) = std::fs::remove_dir_all(&self.work_dir) {
            eprintln!("{} was left behind: {error}", self.work_dir.display());
        }
    }
}

/// Debian installs each version's programs in a directory of its own.
fn find_newest_postgres_bin() -> anyhow::Result<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql")?.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
    versions.max().ok_or_else(|| anyhow::anyhow!("no PostgreSQL is installed"))
}

fn is_root() -> anyhow::Result<bool> {
    Ok(Command::new("id").arg("-u").output()?.stdout.trim_ascii() == b"0")
}

fn run_command(command: &mut Command) -> anyhow::Result<()> {
    // No pipes: a server that keeps running would hold one open forever.
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    anyhow::ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

/// A TCP proxy that can go silent like a broken network: connections stay open, but no data arrives.
#[derive(Debug)]
pub struct TcpProxy {
    port: u16,
    is_cut: watch::Sender<bool>,
}

impl TcpProxy {
    /// Forwards to a port of this machine. Must be called within a runtime.
    pub async fn start(target: u16) -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
        let proxy = Self { port: listener.local_addr()?.port(), is_cut: watch::Sender::new(false) };

        let is_cut = proxy.is_cut.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(proxy_connection(client, target, is_cut.subscribe()));
            }
        });
        Ok(proxy)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn cut(&self) {
        self.is_cut.send_replace(true);
    }

    /// Lets new connections through again. Connections that were cut stay silent: their packets are lost.
    pub fn restore(&self) {
        self.is_cut.send_replace(false);
    }
}

async fn proxy_connection(mut client: TcpStream, target: u16, mut is_cut: watch::Receiver<bool>) {
    let forward = async {
        if let Ok(mut server) = TcpStream::connect(("127.0.0.1", target)).await {
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        }
    };

    // Poll the cut first, so that nothing sent after it gets through.
    let was_cut = tokio::select! {
        biased;
        cut = is_cut.wait_for(|is_cut| *is_cut) => cut.is_ok(),
        () = forward => false,
    };
    if was_cut {
        // Keep the connection open without reading from it.
        std::future::pending::<()>().await;
    }
}

/// Sends a signal by its `kill` name, such as `TERM`.
pub(crate) fn send_signal(pid: u32, name: &str) -> anyhow::Result<()> {
    run_command(Command::new("kill").args([&format!("-{name}"), &pid.to_string()]))
}

/// Picks a port below the ephemeral range. While a stopped server leaves its port free, no client can be assigned that
/// port, and no client that tries to reach the server can connect to itself.
pub fn find_free_port() -> std::io::Result<u16> {
    let mut last_error = std::io::Error::other("no port was tried");
    for _ in 0..100 {
        let port = rand::random_range(15_000..32_000);
        match TcpListener::bind(("127.0.0.1", port)) {
            Ok(_) => return Ok(port),
            Err(error) => last_error = error,
        }
    }
    Err(last_error)
}
