// Errors that are common to all readers of files.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <tandem/base/tuning.h>
#include <tandem/data/cifar.h>
#include <tandem/data/idx.h>
#include <tandem/io/npy.h>
#include <tandem/io/pretrained.h>
#include <tandem/io/safetensors.h>
#include <tandem/io/state_file.h>
#include <tandem/models/gpt2.h>
#include <tandem/tests/support/temporary_folder.h>
#include <tandem/tests/support/test.h>
#include <tandem/text/bpe.h>
#include <tandem/text/char_text.h>
#include <tandem/text/token_file.h>

namespace td = tandem;
namespace fs = std::filesystem;
using td::testing::error_text;
using td::testing::write_file;

namespace {

struct Reader {
  std::string op;  // the beginning of its error texts
  std::function<void(const std::string& path)> read;
};

const std::vector<Reader>& readers() {
  static const std::vector<Reader> all = {
      {"read_idx", [](const std::string& path) { td::data::read_idx(path); }},
      {"read_text", [](const std::string& path) { td::text::read_text(path); }},
      {"TokenFile", [](const std::string& path) { td::text::TokenFile(path, 10); }},
      {"BpeTokenizer", [](const std::string& path) { td::text::BpeTokenizer(path, path); }},
      {"load_npy", [](const std::string& path) { td::io::load_npy(path); }},
      {"load_safetensors", [](const std::string& path) { td::io::load_safetensors(path); }},
      {"load_safetensors", [](const std::string& path) { td::io::load_state(path); }},
      {"load_pretrained",
       [](const std::string& path) {  // through a link, because the file's name is fixed
         const td::testing::TemporaryFolder folder;
         fs::create_symlink(path, folder / "model.safetensors.index.json");
         try {
           td::io::load_pretrained(folder.path());
         } catch (const td::IoError& error) {
           std::string text = error.what();
           const std::string link = folder / "model.safetensors.index.json";
           throw td::IoError(text.replace(text.find(link), link.size(), path));
         }
       }},
      {"read_gpt2_config", [](const std::string& path) { td::models::read_gpt2_config(path); }},
      {"Tuning", [](const std::string& path) { td::Tuning tuning(path); }},
      {"CifarDataset",
       [](const std::string& path) {  // through a link, because the file's name is fixed
         const td::testing::TemporaryFolder folder;
         fs::create_symlink(path, folder / "test_batch.bin");
         const auto read = [&] {
           td::data::CifarDataset(folder.path(), td::data::CifarSplit::kTest, {.records_per_file = 1});
         };
         const std::string text = error_text<td::IoError>(read);
         EXPECT_EQ(text.substr(0, text.find(" is ")), "CifarDataset: '" + (folder / "test_batch.bin") + "'");
         throw td::IoError("CifarDataset: '" + path + "'" + text.substr(std::min(text.find(" is "), text.size())));
       }},
  };
  return all;
}

void expect_rejected(const std::string& path, const std::string& kind) {
  for (const Reader& reader : readers()) {
    EXPECT_ERROR(td::IoError, reader.read(path), reader.op + ": '" + path + "' is " + kind + ", not a regular file");
  }
}

TEST(FileReaders, FifoIsRejectedWithoutBlocking) {
  const td::testing::TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  expect_rejected(folder / "fifo", "a FIFO");
}

TEST(FileReaders, CharacterDeviceIsRejected) { expect_rejected("/dev/zero", "a character device"); }

TEST(FileReaders, FolderIsRejected) {
  const td::testing::TemporaryFolder folder;
  expect_rejected(folder.path(), "a folder");
}

TEST(FileReaders, SocketIsRejected) {
  const td::testing::TemporaryFolder folder;
  // A relative path, because a socket's address has at most 107 characters.
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
  ASSERT_EQ(bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0) << std::strerror(errno);
  fs::current_path(before);
  expect_rejected(folder / "socket", "a socket");
  close(socket);
}

TEST(FileReaders, FileOfUnknownSizeIsRejected) {
  EXPECT_ERROR(td::IoError, td::text::read_text("/proc/self/status"),
               "read_text: '/proc/self/status' contains data although its size is 0; copy it to a regular file first");
}

TEST(FileReaders, SymbolicLinksToFilesAreFollowed) {
  const td::testing::TemporaryFolder folder;
  write_file(folder / "file", "text");
  fs::create_symlink("file", folder / "link");
  fs::create_symlink("link", folder / "link of a link");
  EXPECT_EQ(td::text::read_text(folder / "link of a link"), "text");
  fs::create_symlink("missing", folder / "broken");
  EXPECT_ERROR(td::IoError, td::text::read_text(folder / "broken"),
               "read_text: cannot open '" + (folder / "broken") + "': No such file or directory");
}

TEST(FileReaders, RejectedFileIsClosed) {
  const auto lowest_free = [] {
    const int descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(descriptor);
    return descriptor;
  };
  const int before = lowest_free();
  expect_rejected("/dev/zero", "a character device");
  EXPECT_EQ(lowest_free(), before);
}

}  // namespace
