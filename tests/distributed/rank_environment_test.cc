#include <tandem/distributed/launch/rank_environment.h>

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/base/rank_context.h>
#include <tandem/distributed/rendezvous/wire.h>
#include <tandem/tests/distributed/variables.h>

namespace {

namespace td = tandem;
using namespace td::distributed;
using tandem::testing_support::lookup_in;
using tandem::testing_support::with;
using Map = tandem::testing_support::Variables;

const Map kComplete = {{"RANK", "5"},
                       {"WORLD_SIZE", "8"},
                       {"LOCAL_RANK", "1"},
                       {"LOCAL_WORLD_SIZE", "4"},
                       {"MASTER_ADDR", "10.0.0.7"},
                       {"MASTER_PORT", "29500"}};

std::string error_of(const Map& map) {
  try {
    read_rank_environment(lookup_in(map));
  } catch (const td::ValueError& e) {
    return e.what();
  }
  return "no error";
}

TEST(RankEnvironment, UnsetVariablesMeanNoRank) {
  EXPECT_FALSE(read_rank_environment(lookup_in({})));
  // Clusters export these for all processes.
  EXPECT_FALSE(read_rank_environment(lookup_in({{"MASTER_ADDR", "host"}, {"MASTER_PORT", "1"}, {"RANK", ""}})));
}

TEST(RankEnvironment, ReadsTorchrunVariables) {
  const auto env = read_rank_environment(lookup_in(kComplete));
  ASSERT_TRUE(env);
  EXPECT_EQ(env->rank, 5);
  EXPECT_EQ(env->world_size, 8);
  EXPECT_EQ(env->local_rank, 1);
  EXPECT_EQ(env->local_world_size, 4);
  EXPECT_EQ(env->store_host, "10.0.0.7");
  EXPECT_EQ(env->store_port, 29500);
  EXPECT_EQ(env->token.size(), wire::kTokenBytes);
  EXPECT_FALSE(env->hosts_store);
  EXPECT_FALSE(env->launched_here);
  EXPECT_EQ(env->num_threads, 0);
}

TEST(RankEnvironment, RankZeroHostsStoreOfExternalJob) {
  const Map zero = with(kComplete, {{"RANK", "0"}, {"LOCAL_RANK", "0"}});
  EXPECT_TRUE(read_rank_environment(lookup_in(zero))->hosts_store);
  // torchrun's agent may listen on MASTER_PORT itself.
  EXPECT_EQ(read_rank_environment(lookup_in(with(zero, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}})))->store_port,
            29501);
  EXPECT_EQ(read_rank_environment(lookup_in(with(zero, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})))->store_port,
            29500);
  EXPECT_EQ(read_rank_environment(lookup_in(with(zero, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}})))->port_advice,
            "torchrun's agent listens on MASTER_PORT=29500, so the store needs the next port\n"
            "  choose another port for torchrun: --rdzv-endpoint HOST:PORT or --master-port PORT");
  EXPECT_EQ(
      error_of(with(zero, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"MASTER_PORT", "65535"}})),
      "MASTER_PORT: torchrun's agent listens on 65535, so the store would need port 65536; choose a smaller port");
}

TEST(RankEnvironment, LocalRankVariablesMayBeOptional) {
  const Map map = with(kComplete, {{"LOCAL_RANK", ""}, {"LOCAL_WORLD_SIZE", ""}});
  const auto env = read_rank_environment(lookup_in(map), true);
  ASSERT_TRUE(env);
  EXPECT_EQ(env->rank, 5);
  EXPECT_EQ(env->local_world_size, 0);
  EXPECT_EQ(read_rank_environment(lookup_in(kComplete), true)->local_world_size, 4);
  EXPECT_TRUE(error_of(map).ends_with("\n  missing: LOCAL_RANK LOCAL_WORLD_SIZE"));
  const Map pod = with(map, {{"KUBERNETES_SERVICE_HOST", "10.96.0.1"}});
  EXPECT_EQ(read_rank_environment(lookup_in(pod))->local_world_size, 1);
  EXPECT_EQ(read_rank_environment(lookup_in(pod), true)->local_world_size, 0);
  EXPECT_THROW(read_rank_environment(lookup_in(with(pod, {{"LOCAL_RANK", "0"}}))), td::ValueError);
  EXPECT_THROW(read_rank_environment(lookup_in(with(map, {{"LOCAL_RANK", "1"}})), true), td::ValueError);
  EXPECT_THROW(read_rank_environment(lookup_in(with(map, {{"MASTER_PORT", ""}})), true), td::ValueError);
}

TEST(RankEnvironment, JobsGetDifferentTokens) {
  const auto token = [](const std::string& run_id) {
    return read_rank_environment(lookup_in(with(kComplete, {{"TORCHELASTIC_RUN_ID", run_id}})))->token;
  };
  EXPECT_EQ(token("a"), token("a"));
  EXPECT_NE(token("a"), token("b"));
  const std::string own = wire::random_token();
  EXPECT_EQ(read_rank_environment(lookup_in(with(kComplete, {{"TANDEM_TOKEN", wire::token_to_hex(own)}})))->token, own);
}

TEST(RankEnvironment, ReadsTandemLauncherVariables) {
  const std::string token = wire::random_token();
  Map map = {{"TANDEM_NUM_THREADS", "6"}};
  const RankAssignment assignment{.rank = 3,
                                  .world_size = 5,
                                  .local_rank = 1,
                                  .local_world_size = 2,
                                  .node = 1,
                                  .num_nodes = 4,
                                  .store_host = "127.0.0.1",
                                  .store_port = 4567,
                                  .token = token,
                                  .run_id = "id",
                                  .restart = 6,
                                  .max_restarts = 7};
  for (const auto& [name, value] : rank_variables(assignment)) map[name] = value;
  const auto env = read_rank_environment(lookup_in(map));
  ASSERT_TRUE(env);
  EXPECT_EQ(env->rank, 3);
  EXPECT_EQ(env->world_size, 5);
  EXPECT_EQ(env->local_rank, 1);
  EXPECT_EQ(env->local_world_size, 2);
  EXPECT_EQ(env->store_host, "127.0.0.1");
  EXPECT_EQ(env->store_port, 4567);
  EXPECT_EQ(env->token, token);
  EXPECT_TRUE(env->launched_here);
  EXPECT_FALSE(env->hosts_store);
  EXPECT_EQ(env->num_threads, 6);
  EXPECT_EQ(map["MASTER_PORT"], "4567");
  EXPECT_EQ(map["TORCHELASTIC_RUN_ID"], "id");
  EXPECT_EQ(map["TORCHELASTIC_RESTART_COUNT"], "6");
  EXPECT_EQ(map["TORCHELASTIC_MAX_RESTARTS"], "7");
  EXPECT_EQ(map["GROUP_RANK"], "1");
  EXPECT_EQ(map["GROUP_WORLD_SIZE"], "4");
  EXPECT_EQ(map["ROLE_RANK"], "3");
  EXPECT_EQ(map["ROLE_WORLD_SIZE"], "5");
}

TEST(RankEnvironment, EachMissingVariableIsNamed) {
  for (const auto& [name, value] : kComplete) {
    const std::string text = error_of(with(kComplete, {{name, ""}}));
    EXPECT_TRUE(text.starts_with("rank variables: some are missing\n  found: ")) << text;
    EXPECT_TRUE(text.ends_with("\n  missing: " + name)) << text;
  }
}

TEST(RankEnvironment, InconsistentVariablesAreRejected) {
  const std::string rest = " LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=10.0.0.7 MASTER_PORT=29500";
  EXPECT_EQ(error_of(with(kComplete, {{"RANK", "8"}})),
            "rank variables: RANK must be less than WORLD_SIZE\n  found: RANK=8 WORLD_SIZE=8" + rest);
  EXPECT_EQ(
      error_of(with(kComplete, {{"RANK", "two"}})),
      "rank variables: RANK: expected an integer from 0 to 1048576, got 'two'\n  found: RANK=two WORLD_SIZE=8" + rest);
  EXPECT_EQ(
      error_of(with(kComplete, {{"RANK", "-1"}})),
      "rank variables: RANK: expected an integer from 0 to 1048576, got '-1'\n  found: RANK=-1 WORLD_SIZE=8" + rest);
  EXPECT_TRUE(error_of(with(kComplete, {{"WORLD_SIZE", "8 "}})).starts_with("rank variables: WORLD_SIZE: expected"));
  EXPECT_TRUE(error_of(with(kComplete, {{"LOCAL_RANK", "4"}}))
                  .starts_with("rank variables: LOCAL_RANK must be less than LOCAL_WORLD_SIZE\n"));
  EXPECT_TRUE(error_of(with(kComplete, {{"LOCAL_WORLD_SIZE", "9"}}))
                  .starts_with("rank variables: LOCAL_WORLD_SIZE must not exceed WORLD_SIZE\n"));
  EXPECT_TRUE(
      error_of(with(kComplete, {{"RANK", "0"}})).starts_with("rank variables: LOCAL_RANK must not exceed RANK\n"));
  EXPECT_EQ(error_of(with(kComplete, {{"MASTER_PORT", "0"}})),
            "MASTER_PORT: expected an integer from 1 to 65535, got '0'");
  EXPECT_EQ(error_of(with(kComplete, {{"TANDEM_STORE", "nowhere"}})),
            "TANDEM_STORE: expected host:port, got 'nowhere'");
  EXPECT_EQ(error_of(with(kComplete, {{"TANDEM_STORE", "h:1"}})), "TANDEM_TOKEN: not set, but TANDEM_STORE is");
  EXPECT_EQ(error_of(with(kComplete, {{"TANDEM_NUM_THREADS", "0"}})),
            "TANDEM_NUM_THREADS: expected an integer from 1 to 4096, got '0'");
}

TEST(RankEnvironment, ParsesNumbersStrictly) {
  EXPECT_EQ(parse_num_ranks("x", "cpu").ranks, td::available_cores());
  EXPECT_EQ(parse_num_ranks("x", "1024").ranks, 1024);
  EXPECT_EQ(parse_seconds("x", "0.0015").count(), 2);
  EXPECT_EQ(parse_seconds("x", "30").count(), 30000);
  EXPECT_EQ(parse_seconds("x", "0").count(), 0);
  for (const char* wrong : {"", " 1", "1s", "-1", "0.0001", "inf", "nan", "1e9"}) {
    EXPECT_THROW(parse_seconds("x", wrong), td::ValueError) << wrong;
  }
}

}  // namespace
