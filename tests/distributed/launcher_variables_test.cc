#include <tandem/distributed/launch/launcher_variables.h>

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/rendezvous/wire.h>
#include <tandem/tests/distributed/variables.h>

namespace {

namespace td = tandem;
using namespace td::distributed;
using tandem::testing_support::lookup_in;
using tandem::testing_support::with;
using Map = tandem::testing_support::Variables;

const Map kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "3"},       {"OMPI_COMM_WORLD_SIZE", "4"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                      {"PMIX_NAMESPACE", "1249705985"},    {"PMIX_RANK", "3"}};
const Map kPmi = {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}};
const Map kSlurm = {{"SLURM_PROCID", "5"},
                    {"SLURM_NTASKS", "11"},
                    {"SLURM_STEP_NUM_TASKS", "11"},
                    {"SLURM_LOCALID", "1"},
                    {"SLURM_NODEID", "1"},
                    {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"},
                    {"SLURM_STEP_NODELIST", "node[07-08,11]"},
                    {"SLURM_JOB_ID", "777"},
                    {"SLURM_STEP_ID", "0"}};

RankEnvironment read(const Map& map) {
  const auto env = read_launcher_environment(lookup_in(map));
  EXPECT_TRUE(env);
  return env.value_or(RankEnvironment());
}

std::string error_of(const Map& map) {
  try {
    read_launcher_environment(lookup_in(map));
  } catch (const td::ValueError& e) {
    return e.what();
  }
  return "no error";
}

void expect_numbers(const RankEnvironment& env, int rank, int world_size, int local_rank, int local_world_size) {
  EXPECT_EQ(env.rank, rank);
  EXPECT_EQ(env.world_size, world_size);
  EXPECT_EQ(env.local_rank, local_rank);
  EXPECT_EQ(env.local_world_size, local_world_size);
  EXPECT_FALSE(env.launched_here);
  EXPECT_EQ(env.hosts_store, rank == 0);
}

TEST(LauncherVariables, OpenMpiVariablesAreRead) {
  const RankEnvironment env = read(kOpenMpi);
  expect_numbers(env, 3, 4, 1, 4);
  EXPECT_EQ(env.store_host, "127.0.0.1");
  EXPECT_GE(env.store_port, 10000);
  EXPECT_LT(env.store_port, 30000);
  EXPECT_EQ(env.token.size(), wire::kTokenBytes);
  EXPECT_EQ(env.port_advice, "the port is derived from the job id of OpenMPI; set MASTER_PORT to a free port");
  // All ranks derive the same values; ranks of another job derive different ones.
  const RankEnvironment zero =
      read(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"PMIX_RANK", "0"}}));
  expect_numbers(zero, 0, 4, 0, 4);
  EXPECT_EQ(zero.store_port, env.store_port);
  EXPECT_EQ(zero.token, env.token);
  const RankEnvironment other = read(with(kOpenMpi, {{"PMIX_NAMESPACE", "1249771521"}}));
  EXPECT_NE(other.store_port, env.store_port);
  EXPECT_NE(other.token, env.token);
  EXPECT_NE(read(with(kOpenMpi, {{"OMPI_MCA_orte_precondition_transports", "83-01"}})).token, env.token);
  // Older versions use another variable for the job id.
  EXPECT_EQ(read(with(kOpenMpi, {{"PMIX_NAMESPACE", ""}, {"OMPI_MCA_ess_base_jobid", "1249705985"}})).store_port,
            env.store_port);
}

TEST(LauncherVariables, MasterVariablesAndTokenTakePrecedence) {
  const std::string token = wire::random_token();
  const RankEnvironment env = read(with(
      kOpenMpi, {{"MASTER_ADDR", "10.0.0.7"}, {"MASTER_PORT", "29500"}, {"TANDEM_TOKEN", wire::token_to_hex(token)}}));
  EXPECT_EQ(env.store_host, "10.0.0.7");
  EXPECT_EQ(env.store_port, 29500);
  EXPECT_EQ(env.token, token);
  EXPECT_EQ(env.port_advice, "set MASTER_PORT to a free port");
}

TEST(LauncherVariables, SeveralHostsRequireMasterAddr) {
  const Map hosts = with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  EXPECT_EQ(
      error_of(hosts),
      "rank variables of OpenMPI: the ranks are on several hosts, but MASTER_ADDR (the host of rank 0) is not set\n"
      "  set it with: mpirun -x MASTER_ADDR\n"
      "  found: OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 "
      "OMPI_COMM_WORLD_LOCAL_SIZE=2");
  EXPECT_EQ(read(with(hosts, {{"MASTER_ADDR", "first"}})).store_host, "first");
}

TEST(LauncherVariables, PmiVariablesAreReadAndChecked) {
  const Map located = with(kPmi, {{"MASTER_ADDR", "first"}, {"PMI_JOBID", "kvs_12_0"}});
  const RankEnvironment env = read(located);
  expect_numbers(env, 2, 3, 0, 2);
  EXPECT_EQ(env.store_host, "first");
  EXPECT_NE(read(with(located, {{"PMI_JOBID", "kvs_13_0"}})).store_port, env.store_port);
  EXPECT_EQ(error_of(with(kPmi, {{"MASTER_ADDR", "first"}})),
            "rank variables of PMI: MASTER_PORT is not set, and there is no job id to derive a port from\n"
            "  set it with: mpiexec -genv MASTER_PORT\n"
            "  found: PMI_RANK=2 PMI_SIZE=3 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 MASTER_ADDR=first");
  EXPECT_EQ(error_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}),
            "rank variables of PMI: MPI_LOCALRANKID is missing\n  found: PMI_RANK=0 PMI_SIZE=2");
}

TEST(LauncherVariables, SlurmVariablesAreRead) {
  const RankEnvironment env = read(kSlurm);
  expect_numbers(env, 5, 11, 1, 4);
  EXPECT_EQ(env.store_host, "node07");
  EXPECT_GE(env.store_port, 10000);
  EXPECT_LT(env.store_port, 30000);
  const RankEnvironment last =
      read(with(kSlurm, {{"SLURM_PROCID", "10"}, {"SLURM_NODEID", "2"}, {"SLURM_LOCALID", "2"}}));
  expect_numbers(last, 10, 11, 2, 3);
  EXPECT_EQ(last.store_port, env.store_port);
  EXPECT_EQ(last.token, env.token);
  // Another step of the job is a separate job.
  EXPECT_NE(read(with(kSlurm, {{"SLURM_STEP_ID", "1"}})).token, env.token);
  EXPECT_NE(read(with(kSlurm, {{"SLURM_STEP_ID", "1"}})).store_port, env.store_port);
}

TEST(LauncherVariables, SlurmFallsBackToTasksPerNode) {
  const Map few = {{"SLURM_PROCID", "1"},  {"SLURM_NTASKS", "2"},          {"SLURM_LOCALID", "1"},
                   {"SLURM_STEP_ID", "3"}, {"SLURM_NTASKS_PER_NODE", "2"}, {"SLURM_JOB_ID", "9"}};
  const RankEnvironment env = read(few);
  expect_numbers(env, 1, 2, 1, 2);
  EXPECT_EQ(env.store_host, "127.0.0.1");
  EXPECT_EQ(read(with(few, {{"SLURM_NTASKS_PER_NODE", ""}, {"SLURM_TASKS_PER_NODE", "2"}})).local_world_size, 2);
  EXPECT_EQ(error_of(with(few, {{"SLURM_NTASKS_PER_NODE", ""}})),
            "rank variables of Slurm: SLURM_NTASKS_PER_NODE is missing\n  found: SLURM_PROCID=1 SLURM_NTASKS=2 "
            "SLURM_LOCALID=1 SLURM_JOB_ID=9 SLURM_STEP_ID=3");
}

TEST(LauncherVariables, SlurmBatchScriptIsNotARank) {
  EXPECT_FALSE(read_launcher_environment(lookup_in({})));
  EXPECT_FALSE(read_launcher_environment(
      lookup_in({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "0"}, {"SLURM_JOB_ID", "9"}})));
}

TEST(LauncherVariables, InnermostLauncherTakesPrecedence) {
  // mpirun under srun, mpiexec with srun's proxies, srun with its own PMI, and torchrun under mpirun.
  expect_numbers(read(with(kOpenMpi, kSlurm)), 3, 4, 1, 4);
  expect_numbers(read(with(with(kPmi, kSlurm), {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}})), 2, 3, 0, 2);
  expect_numbers(read(with(kSlurm, {{"PMI_RANK", "5"}, {"PMI_SIZE", "11"}})), 5, 11, 1, 4);
  const auto env = read_rank_environment(lookup_in(with(kOpenMpi, {{"RANK", "0"},
                                                                   {"WORLD_SIZE", "8"},
                                                                   {"LOCAL_RANK", "0"},
                                                                   {"LOCAL_WORLD_SIZE", "4"},
                                                                   {"MASTER_ADDR", "a"},
                                                                   {"MASTER_PORT", "7"}})));
  ASSERT_TRUE(env);
  expect_numbers(*env, 0, 8, 0, 4);
  // launch uses them too, except for a single task, which may start ranks itself.
  ASSERT_TRUE(read_rank_environment(lookup_in(kOpenMpi)));
  const Map alone = {{"OMPI_COMM_WORLD_RANK", "0"},
                     {"OMPI_COMM_WORLD_SIZE", "1"},
                     {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};
  EXPECT_FALSE(read_rank_environment(lookup_in(alone)));
  EXPECT_EQ(read(alone).world_size, 1);
  EXPECT_FALSE(read(alone).hosts_store);  // no store is needed
}

TEST(LauncherVariables, InconsistentVariablesAreListedInError) {
  EXPECT_EQ(error_of(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "4"}})),
            "rank variables of OpenMPI: OMPI_COMM_WORLD_RANK must be less than OMPI_COMM_WORLD_SIZE\n"
            "  found: OMPI_COMM_WORLD_RANK=4 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 "
            "OMPI_COMM_WORLD_LOCAL_SIZE=4");
  const auto begins = [](const Map& map, const std::string& text) {
    EXPECT_TRUE(error_of(map).starts_with(text + "\n  found: ")) << error_of(map);
  };
  begins(with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "four"}}),
         "rank variables of OpenMPI: OMPI_COMM_WORLD_SIZE: expected an integer from 1 to 1048576, got 'four'");
  begins(with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", ""}}), "rank variables of OpenMPI: OMPI_COMM_WORLD_SIZE is missing");
  begins(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}}),
         "rank variables of OpenMPI: OMPI_COMM_WORLD_LOCAL_RANK must be less than OMPI_COMM_WORLD_LOCAL_SIZE");
  begins(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "5"}}),
         "rank variables of OpenMPI: OMPI_COMM_WORLD_LOCAL_SIZE must not exceed OMPI_COMM_WORLD_SIZE");
  begins(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "0"}}),
         "rank variables of OpenMPI: OMPI_COMM_WORLD_LOCAL_RANK must not exceed OMPI_COMM_WORLD_RANK");
  begins(with(kSlurm, {{"SLURM_NODEID", "3"}}),
         "rank variables of Slurm: SLURM_NODEID is not an index of SLURM_STEP_TASKS_PER_NODE");
  begins(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "4x"}}),
         "rank variables of Slurm: SLURM_STEP_TASKS_PER_NODE is not a list of task counts");
  begins(with(kSlurm, {{"SLURM_JOB_ID", ""}}),
         "rank variables of Slurm: MASTER_PORT is not set, and there is no job id to derive a port "
         "from\n  set it with: export MASTER_PORT");
  begins(with(kSlurm, {{"SLURM_STEP_NODELIST", "node[1-"}}),
         "rank variables of Slurm: the ranks are on several hosts, but MASTER_ADDR (the host of rank 0) is not set\n"
         "  set it with: export MASTER_ADDR");
}

TEST(LauncherVariables, SlurmListsAreParsed) {
  EXPECT_EQ(first_slurm_host("node1"), "node1");
  EXPECT_EQ(first_slurm_host("node1,node2"), "node1");
  EXPECT_EQ(first_slurm_host("node[03-05,9],other"), "node03");
  EXPECT_EQ(first_slurm_host("rack[2,4]-node[007-8].x,y"), "rack2-node007.x");
  EXPECT_EQ(first_slurm_host("node[3]"), "node3");
  EXPECT_EQ(first_slurm_host("node[3"), "");
  EXPECT_EQ(first_slurm_host(""), "");
  EXPECT_EQ(slurm_tasks_by_node("4"), (std::vector<int>{4}));
  EXPECT_EQ(slurm_tasks_by_node("4(x2),3"), (std::vector<int>{4, 4, 3}));
  EXPECT_EQ(slurm_tasks_by_node("1,2(x1),3(x3)"), (std::vector<int>{1, 2, 3, 3, 3}));
  for (const char* wrong : {"", ",", "4,", "4(x2", "4(x)", "4(2)", "-1", "0", "4 ", "4(x9999999),1", "x"}) {
    EXPECT_TRUE(slurm_tasks_by_node(wrong).empty()) << wrong;
  }
}

}  // namespace
