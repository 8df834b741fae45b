#include <tandem/base/file.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>

#include <tandem/tests/support/temporary_folder.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

using testing::error_text;
using testing::read_file;
using testing::TemporaryFolder;

TEST(InputFile, ReadsAtOffsetAndDetectsTruncation) {
  const TemporaryFolder folder;
  const InputFile file("op", folder.write("file", std::string("abcdef")));
  EXPECT_EQ(file.size(), 6);
  EXPECT_EQ(file.text(), "abcdef");
  std::string part(3, ' ');
  file.read(part.data(), 2, 3);
  EXPECT_EQ(part, "cde");
  EXPECT_EQ(folder.shortened(error_text<IoError>([&] { file.read(part.data(), 4, 3); })),
            "op: 'DIR/file' was truncated while it was being read");
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // they need more memory than the limit
TEST(InputFile, TextOfAHugeSparseFileIsAnError) {
  const TemporaryFolder folder;
  const std::string path = folder.write("file", std::string("{}"));
  std::filesystem::resize_file(path, int64_t{1} << 41);
  const rlimit limit = {rlim_t{1} << 40, RLIM_INFINITY};  // some systems give out more memory than they have
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  EXPECT_ERROR(IoError, InputFile("op", path).text(),
               "op: '" + path + "' has 2199023255552 bytes, which do not fit into the memory");
}
#endif

TEST(InputFile, MappedBytesEqualTheFileAndWritesArePrivate) {
  const TemporaryFolder folder;
  const std::string path = folder.write("file", std::string("abcdef"));
  std::shared_ptr<std::byte> bytes;
  {
    const InputFile file("op", path);
    bytes = file.map();
  }
  auto* const text = reinterpret_cast<char*>(bytes.get());
  EXPECT_EQ(std::string(text, 6), "abcdef");
  text[0] = 'x';
  EXPECT_EQ(std::string(text, 6), "xbcdef");
  EXPECT_EQ(read_file(path), "abcdef");
  std::filesystem::remove(path);
  EXPECT_EQ(std::string(text, 6), "xbcdef");
}

TEST(InputFile, EmptyFileIsMappedToNull) {
  const TemporaryFolder folder;
  EXPECT_EQ(InputFile("op", folder.write("file", std::string())).map(), nullptr);
}

TEST(InputFile, FailedMappingNamesTheReason) {
  const InputFile file("op", "/sys/devices/system/cpu/online");  // a regular file that cannot be mapped
  EXPECT_ERROR(IoError, file.map(), "op: cannot map '/sys/devices/system/cpu/online' into memory: No such device");
}

TEST(PathExists, IsFalseOnlyForMissingPaths) {
  const TemporaryFolder folder;
  const std::string file = folder.write("file", std::string("x"));
  EXPECT_TRUE(path_exists("op", folder.path()));
  EXPECT_TRUE(path_exists("op", file));
  EXPECT_FALSE(path_exists("op", folder / "missing"));
  EXPECT_FALSE(path_exists("op", file + "/below"));
  const std::string name(300, 'x');
  EXPECT_ERROR(IoError, path_exists("op", name), "op: cannot access '" + name + "': File name too long");
}

/// Exits with status 0 if what the process prints reaches no file that is opened after its standard streams are closed.
[[noreturn]] void print_while_files_are_open(const std::string& path) {
  int descriptor = -1;
  for (const int stream : {2, 1, 0}) {  // each is the lowest free number in turn
    close(stream);
    descriptor = above_standard(open(path.c_str(), O_WRONLY));
  }
  const InputFile file("op", path);
  const bool is_closed = write(1, "x", 1) < 0 && write(2, "x", 1) < 0;
  open_standard_streams();
  const bool is_open = write(1, "x", 1) == 1 && write(2, "x", 1) == 1 && read(0, &errno, 1) == 0;
  const bool is_kept = file.text() == "kept" && (fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0;
  std::_Exit(is_closed && is_open && is_kept && above_standard(-1) == -1 ? 0 : 1);
}

TEST(AboveStandard, FilesDoNotReplaceClosedStandardStreams) {
  const TemporaryFolder folder;
  const std::string path = folder.write("file", std::string("kept"));
  EXPECT_EXIT(print_while_files_are_open(path), ::testing::ExitedWithCode(0), "");
  EXPECT_EQ(read_file(path), "kept");
}

TEST(WriteFile, ReplacesByDefaultAndAppendsOnRequest) {
  const TemporaryFolder folder;
  write_file("op", folder / "file", "a longer text");
  write_file("op", folder / "file", "first");
  EXPECT_EQ(read_file(folder / "file"), "first");
  write_file("op", folder / "file", ", second", WriteMode::kAppend);
  EXPECT_EQ(read_file(folder / "file"), "first, second");
}

TEST(WriteFile, FifosDoNotBlock) {
  const TemporaryFolder folder;
  const std::string path = folder / "fifo";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_ERROR(IoError, write_file("op", path, "x"), "op: cannot write '" + path + "': No such device or address");
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  write_file("op", path, "text");
  std::string text(4, ' ');
  EXPECT_EQ(read(reader, text.data(), 4), 4);
  EXPECT_EQ(text, "text");
  EXPECT_ERROR(IoError, write_file("op", path, std::string(1 << 20, 'x')),
               "op: cannot write '" + path + "': Resource temporarily unavailable");
  close(reader);
}

TEST(WriteFile, ErrorsNamePathAndReason) {
  const TemporaryFolder folder;
  EXPECT_EQ(folder.shortened(error_text<IoError>([&] { write_file("op", folder / "missing/file", "x"); })),
            "op: cannot write 'DIR/missing/file': No such file or directory");
  EXPECT_EQ(folder.shortened(error_text<IoError>([&] { write_file("op", folder.path(), "x"); })),
            "op: cannot write 'DIR': Is a directory");
  EXPECT_ERROR(IoError, write_file("op", "/dev/full", "x"), "op: cannot write '/dev/full': No space left on device");
}

bool is_blocked(int signal) {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return sigismember(&mask, signal) == 1;
}

bool is_pending(int signal) {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, signal) == 1;
}

/// Exits with status 0 if a write beyond the limit fails with EFBIG under `disposition`, and leaves the signal mask and
/// the set of pending signals unchanged.
[[noreturn]] void write_beyond_limit(const std::string& path, sighandler_t disposition) {
  std::signal(SIGXFSZ, disposition);
  const rlimit limit = {10, 10};
  if (setrlimit(RLIMIT_FSIZE, &limit) != 0) std::_Exit(2);
  try {
    write_file("op", path, "0123456789 is within the limit, the rest is not");
  } catch (const IoError& error) {
    const bool right = std::string(error.what()).ends_with("': File too large");
    std::_Exit(right && !is_blocked(SIGXFSZ) && !is_pending(SIGXFSZ) ? 0 : 3);
  }
  std::_Exit(4);
}

TEST(FileSizeLimit, WriteBeyondLimitThrowsForEverySignalDisposition) {
  const TemporaryFolder folder;
  const sighandler_t handler = [](int) { std::_Exit(5); };
  for (const sighandler_t disposition : {SIG_DFL, SIG_IGN, handler}) {
    EXPECT_EXIT(write_beyond_limit(folder / "file", disposition), ::testing::ExitedWithCode(0), "");
    EXPECT_EQ(read_file(folder / "file"), "0123456789");
  }
}

TEST(FileSizeSignalGuard, EarlierPendingSignalStaysPending) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  sigset_t old;
  pthread_sigmask(SIG_BLOCK, &set, &old);
  raise(SIGXFSZ);
  { const FileSizeSignalGuard guard; }
  EXPECT_TRUE(is_pending(SIGXFSZ));
  EXPECT_TRUE(is_blocked(SIGXFSZ));
  const timespec now = {};
  EXPECT_EQ(sigtimedwait(&set, nullptr, &now), SIGXFSZ);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

TEST(FileSizeSignalGuard, PreservesErrnoOnDestruction) {
  errno = EFBIG;
  { const FileSizeSignalGuard guard; }
  EXPECT_EQ(errno, EFBIG);
}

}}  // namespace tandem
