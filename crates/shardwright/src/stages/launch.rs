//! Which stage a process is, and where stage 0 listens: from flags, or from what started the processes.

use anyhow::bail;

#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Pipeline stages")]
pub(crate) struct StageArgs {
    /// Processes to cut the model over by layer, on one host or on several; they run one after the other, on the CPU. Start
    /// the same command for each, by hand or by torchrun, srun or mpirun; stage 0 prints and serves.
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pipeline_parallel_size: u32,
    /// Which stage this process is, from 0 [default: what the launcher says].
    #[arg(long, value_name = "N")]
    node_rank: Option<u32>,
    /// Name or address on which stage 0 listens for the others [default: what the launcher says, else 127.0.0.1].
    #[arg(long, value_name = "HOST")]
    master_addr: Option<String>,
    /// The port there [default: MASTER_PORT, else 29500].
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    master_port: Option<u16>,
}

/// A process among the stages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Which one it is.
    pub(crate) stage: usize,
    /// How many there are.
    pub(crate) stages: usize,
    /// Where stage 0 listens.
    pub(super) address: (String, u16),
}

/// The port that torchrun takes too.
const PORT: u16 = 29500;

/// The variables of what starts many processes: their own number, how many there are, and how many on this host.
const LAUNCHERS: [(&str, [&str; 3]); 4] = [
    ("torchrun", ["RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"]),
    ("mpirun", ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"]),
    ("mpirun", ["PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"]),
    ("Slurm", ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"]),
];

type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

impl StageArgs {
    /// Are there to be several stages?
    pub(crate) fn is_cut(&self) -> bool {
        self.pipeline_parallel_size > 1
    }

    /// Which stage this process is; None where the model stays in one piece.
    pub(crate) fn place(&self) -> anyhow::Result<Option<Place>> {
        let env = |name: &str| std::env::var(name).ok();
        let place = self.place_in(&env)?;
        if let (None, Some(Launched { by, names: [rank, size, _], .. })) =
            (&place, launched(&env)?.filter(|l| l.size > 1))
        {
            log::warn!(
                "{by} started several processes ({rank}, {size}), and each runs the whole model; \
                 --pipeline-parallel-size makes them its stages"
            );
        }
        Ok(place)
    }

    /// The same for a stage that is not the first.
    pub(crate) fn later_place(&self) -> anyhow::Result<Option<Place>> {
        Ok(self.place_in(&|name| std::env::var(name).ok())?.filter(|place| place.stage > 0))
    }

    fn place_in(&self, env: Env<'_>) -> anyhow::Result<Option<Place>> {
        let launched = launched(env)?;
        let stages = self.pipeline_parallel_size as usize;
        if stages <= 1 {
            if self.node_rank.is_some() || self.master_addr.is_some() || self.master_port.is_some() {
                bail!(
                    "--node-rank, --master-addr and --master-port are for --pipeline-parallel-size 2 or more"
                );
            }
            return Ok(None);
        }
        let stage = match (self.node_rank, &launched) {
            (Some(rank), _) => rank as usize,
            (None, Some(l)) if l.size != stages => bail!(
                "{} started {} processes ({}), but there are {stages} stages (--pipeline-parallel-size)",
                l.by,
                l.size,
                l.names[1]
            ),
            (None, Some(l)) => l.rank,
            (None, None) => {
                bail!(
                    "which stage is this? Give --node-rank, or start all stages by torchrun, srun or mpirun"
                )
            }
        };
        if stage >= stages {
            bail!("stage {stage} of {stages}: they are counted from 0");
        }
        Ok(Some(Place { stage, stages, address: (self.host(env, launched.as_ref())?, self.port(env)?) }))
    }

    fn host(&self, env: Env<'_>, launched: Option<&Launched>) -> anyhow::Result<String> {
        let nodes =
            || env("SLURM_STEP_NODELIST").or_else(|| env("SLURM_JOB_NODELIST")).map(|l| first_host(&l));
        let told = self.master_addr.clone().or_else(|| env("MASTER_ADDR")).or_else(nodes);
        match (told.filter(|host| !host.is_empty()), launched.filter(|_| self.node_rank.is_none())) {
            (Some(host), _) => Ok(host),
            (None, Some(l)) if !l.together => {
                bail!("where does stage 0 listen? {} does not say: give --master-addr", l.by)
            }
            (None, _) => Ok("127.0.0.1".into()),
        }
    }

    fn port(&self, env: Env<'_>) -> anyhow::Result<u16> {
        match (self.master_port, env("MASTER_PORT")) {
            (Some(port), _) => Ok(port),
            (None, None) => Ok(PORT),
            (None, Some(text)) => match text.parse() {
                Ok(port) if port > 0 => Ok(port),
                _ => bail!("MASTER_PORT is `{text}`, but must be 1 to 65535"),
            },
        }
    }
}

/// What a launcher says.
struct Launched {
    by: &'static str,
    names: [&'static str; 3],
    rank: usize,
    size: usize,
    /// Are all processes on this host?
    together: bool,
}

fn launched(env: Env<'_>) -> anyhow::Result<Option<Launched>> {
    let number = |name: &str| match env(name).map(|text| (text.parse::<usize>(), text)) {
        None => Ok(None),
        Some((Ok(n), _)) => Ok(Some(n)),
        Some((Err(_), text)) => bail!("{name} is `{text}`, but must be a number"),
    };
    for (by, names) in LAUNCHERS {
        if let (Some(rank), Some(size)) = (number(names[0])?, number(names[1])?) {
            let together = number(names[2])? == Some(size);
            return Ok(Some(Launched { by, names, rank, size, together }));
        }
    }
    Ok(None)
}

/// The first of a list such as `gpu[03-05,9],login1`: `gpu03`.
fn first_host(list: &str) -> String {
    let mut host = String::new();
    let mut rest = list.chars();
    while let Some(c) = rest.next() {
        match c {
            ',' => break,
            '[' => {
                // the first of the numbers in brackets
                let inside: String = rest.by_ref().take_while(|c| *c != ']').collect();
                host.push_str(inside.split([',', '-']).next().unwrap_or_default());
            }
            c => host.push(c),
        }
    }
    host
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(stages: u32) -> StageArgs {
        StageArgs { pipeline_parallel_size: stages, ..StageArgs::default() }
    }

    fn place(args: &StageArgs, vars: &str) -> Result<Option<(usize, String)>, String> {
        let find = |name: &str| {
            vars.split(' ')
                .find_map(|v| v.split_once('=').filter(|(n, _)| *n == name))
                .map(|(_, v)| v.to_owned())
        };
        let place = args.place_in(&find).map_err(|e| e.to_string())?;
        Ok(place.map(|p| (p.stage, format!("{}:{}", p.address.0, p.address.1))))
    }

    #[test]
    fn a_process_learns_its_place() {
        let check = |args: &StageArgs, vars: &str, stage: usize, address: &str| {
            assert_eq!(place(args, vars), Ok(Some((stage, address.to_owned()))), "{vars}");
        };
        let own = StageArgs { node_rank: Some(1), ..args(2) };
        check(&own, "", 1, "127.0.0.1:29500");
        let told = StageArgs { master_addr: Some("h".into()), master_port: Some(7), ..own.clone() };
        check(&told, "RANK=0 WORLD_SIZE=9 MASTER_ADDR=x MASTER_PORT=1", 1, "h:7");
        check(
            &args(2),
            "RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=10.0.0.1 MASTER_PORT=80",
            1,
            "10.0.0.1:80",
        );
        check(&args(3), "SLURM_PROCID=2 SLURM_NTASKS=3 SLURM_STEP_NODELIST=gpu[07-09]", 2, "gpu07:29500");
        let both = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_JOB_NODELIST=a,b";
        check(&args(2), both, 1, "a:29500");
        let here = "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2";
        check(&args(2), here, 0, "127.0.0.1:29500");
        check(&args(2), "PMI_RANK=0 PMI_SIZE=2 MPI_LOCALNRANKS=2", 0, "127.0.0.1:29500");
        assert_eq!(place(&args(1), "RANK=1 WORLD_SIZE=2"), Ok(None));
        assert_eq!(place(&args(1), "RANK=0 WORLD_SIZE=1"), Ok(None));
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let check = |args: &StageArgs, vars: &str, want: &str| {
            let why = place(args, vars).unwrap_err();
            assert!(why.contains(want), "{vars}: {why}");
        };
        check(&args(2), "", "--node-rank");
        check(&args(2), "RANK=0 WORLD_SIZE=3", "started 3 processes (WORLD_SIZE), but there are 2");
        check(&args(2), "RANK=x WORLD_SIZE=2", "RANK is `x`");
        check(&args(2), "RANK=5 WORLD_SIZE=2", "stage 5 of 2");
        check(&args(2), "RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=0", "MASTER_PORT is `0`");
        check(&args(2), "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALNRANKS=1", "give --master-addr");
        check(&StageArgs { node_rank: Some(0), ..args(1) }, "", "--pipeline-parallel-size 2");
    }

    #[test]
    fn the_first_host_of_a_list() {
        let check = |list: &str, host: &str| assert_eq!(first_host(list), host);
        check("a", "a");
        check("a,b", "a");
        check("n[1-3]", "n1");
        check("n[08,11]-x[2-4],m", "n08-x2");
        check("n[", "n");
        check("", "");
    }
}
