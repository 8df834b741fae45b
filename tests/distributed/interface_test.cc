// Choice of the network interface.
#include <tandem/distributed/backends/network/interface.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/process_group.h>
#include <tandem/tests/distributed/thrown.h>

namespace tandem { inline namespace v0 { namespace distributed::network { namespace {

constexpr const char* kVariables[] = {"TANDEM_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "MASTER_ADDR"};

class NetworkInterface : public ::testing::Test {
 protected:
  NetworkInterface() {
    for (const char* variable : kVariables) unsetenv(variable);
  }
  ~NetworkInterface() override {
    for (const char* variable : kVariables) unsetenv(variable);
  }
  static ProcessGroupOptions options(const std::string& interface = {}) {
    return {.store = {}, .rank = 1, .world_size = 2, .network_interface = interface};
  }
  static std::string refusal(const ProcessGroupOptions& o, bool same_machine = true) {
    return text_of<CommError>([&] { choose_interface(o, same_machine); });
  }
};

TEST_F(NetworkInterface, LoopbackIsUsedWithinOneMachine) {
  const Interface found = choose_interface(options(), true);
  EXPECT_TRUE(found.is_loopback);
  EXPECT_EQ(found.address, "127.0.0.1");
}

TEST_F(NetworkInterface, IsChosenByNameOrAddress) {
  EXPECT_EQ(choose_interface(options("lo"), false).name, "lo");
  EXPECT_EQ(choose_interface(options("127.0.0.1"), false).name, "lo");
}

TEST_F(NetworkInterface, OptionPrecedesTandemThenGlooVariable) {
  setenv("GLOO_SOCKET_IFNAME", "third0", 1);
  EXPECT_NE(refusal(options()).find("'third0' (from GLOO_SOCKET_IFNAME)"), std::string::npos);
  setenv("TANDEM_SOCKET_IFNAME", "second0", 1);
  EXPECT_NE(refusal(options()).find("'second0' (from TANDEM_SOCKET_IFNAME)"), std::string::npos);
  EXPECT_NE(refusal(options("first0")).find("'first0' (from ProcessGroupOptions::network_interface)"),
            std::string::npos);
  EXPECT_EQ(choose_interface(options("lo"), false).name, "lo");
  setenv("TANDEM_SOCKET_IFNAME", "lo", 1);
  EXPECT_EQ(choose_interface(options(), false).name, "lo");
  unsetenv("TANDEM_SOCKET_IFNAME");
  setenv("GLOO_SOCKET_IFNAME", "127.0.0.1", 1);
  EXPECT_EQ(choose_interface(options(), false).name, "lo");
}

TEST_F(NetworkInterface, UnknownNameErrorListsActiveInterfaces) {
  std::string up;
  for (const Interface& i : list_interfaces()) up += "\n  " + i.name + "  " + i.address;
  EXPECT_NE(up.find("\n  lo  127.0.0.1"), std::string::npos);
  EXPECT_EQ(refusal(options("no_such0")),
            "[rank 1 of 2] group 'default': no network interface has the name or address 'no_such0' "
            "(from ProcessGroupOptions::network_interface); interfaces that are up:" +
                up);
}

TEST_F(NetworkInterface, LoopbackIsNotUsedBetweenHosts) {
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  const std::vector<Interface> all = list_interfaces();
  if (std::all_of(all.begin(), all.end(), [](const Interface& i) { return i.is_loopback; })) {
    EXPECT_NE(refusal(options(), false).find("no network interface can reach other hosts; interfaces that are up:"),
              std::string::npos);
  } else {
    EXPECT_FALSE(choose_interface(options(), false).is_loopback);
  }
}

TEST_F(NetworkInterface, MasterAddrSelectsItsInterface) {
  for (const Interface& i : list_interfaces()) {
    if (i.is_loopback || i.address.find(':') != std::string::npos) continue;
    setenv("MASTER_ADDR", i.address.c_str(), 1);
    EXPECT_EQ(choose_interface(options(), false).address, i.address);
  }
}

}}}}  // namespace tandem::v0::distributed::network
