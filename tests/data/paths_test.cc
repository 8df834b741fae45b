// Datasets in paths that cannot be opened.
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>

#include <tandem/data/cifar.h>
#include <tandem/data/mnist.h>
#include <tandem/tests/support/temporary_folder.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
namespace fs = std::filesystem;
using td::testing::error_text;

namespace {

void open_mnist(const std::string& folder) { td::data::MnistDataset data(folder, td::data::MnistSplit::kTrain); }
void open_cifar(const std::string& folder) { td::data::CifarDataset data(folder, td::data::CifarSplit::kTest); }

/// Drops the capabilities with which root ignores permissions, calls f, prints the text of an IoError, and exits with
/// status 0.
[[noreturn]] void run_unprivileged(const std::function<void()>& f) {
  __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  const __user_cap_data_struct none[2] = {};
  if (syscall(SYS_capset, &header, none) != 0) std::_Exit(2);
  try {
    f();
  } catch (const td::IoError& error) {
    std::fputs(error.what(), stderr);
    std::_Exit(0);
  }
  std::_Exit(3);
}

TEST(DataPaths, SymlinkLoopIsAnIoErrorWithReason) {
  const td::testing::TemporaryFolder folder;
  fs::create_symlink("loop", folder / "loop");
  const std::string loop = folder / "loop";
  EXPECT_ERROR(td::IoError, open_mnist(loop),
               "MnistDataset: cannot access '" + loop + "/train-images-idx3-ubyte': Too many levels of symbolic links");
  EXPECT_ERROR(td::IoError, open_cifar(loop),
               "CifarDataset: cannot access '" + loop + "/cifar-10-batches-bin/.': Too many levels of symbolic links");
}

TEST(DataPaths, OverlongNameIsAnIoErrorWithReason) {
  const std::string name(300, 'x');
  EXPECT_ERROR(td::IoError, open_mnist(name),
               "MnistDataset: cannot access '" + name + "/train-images-idx3-ubyte': File name too long");
  EXPECT_ERROR(td::IoError, open_cifar(name),
               "CifarDataset: cannot access '" + name + "/cifar-10-batches-bin/.': File name too long");
}

TEST(DataPaths, PathBelowFileIsReportedAsMissingFiles) {
  const td::testing::TemporaryFolder folder;
  const std::string below = folder.write("file", std::string("x")) + "/below";
  EXPECT_TRUE(error_text<td::IoError>([&] {
                open_mnist(below);
              }).starts_with("MnistDataset: '" + below + "' does not have all files"));
  EXPECT_TRUE(error_text<td::IoError>([&] {
                open_cifar(below);
              }).starts_with("CifarDataset: '" + below + "' does not have all files"));
}

TEST(DataPaths, UnreadableFolderIsAnIoErrorWithReason) {
  const td::testing::TemporaryFolder folder;
  fs::create_directory(folder / "closed");
  fs::permissions(folder / "closed", fs::perms::none);
  EXPECT_EXIT(run_unprivileged([&] { open_mnist(folder / "closed"); }), ::testing::ExitedWithCode(0),
              "MnistDataset: cannot access '.*/closed/train-images-idx3-ubyte': Permission denied$");
  EXPECT_EXIT(run_unprivileged([&] { open_cifar(folder / "closed"); }), ::testing::ExitedWithCode(0),
              "CifarDataset: cannot access '.*/closed/cifar-10-batches-bin/.': Permission denied$");
}

}  // namespace
