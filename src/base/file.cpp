#include "base/file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"

namespace orthant {
namespace {

[[noreturn]] void fail_io(std::string_view doing, const std::string& path) {
  const int error = errno;
  const std::string message = fmt::format("cannot {} {}: {}", doing, path, std::strerror(error));
  constexpr int kOfUser[] = {ENOENT, EACCES, EPERM, EISDIR, ENOTDIR, ENAMETOOLONG, ELOOP, EROFS};
  const bool user = std::find(std::begin(kOfUser), std::end(kOfUser), error) != std::end(kOfUser);
  throw Error(user ? Fault::kUser : Fault::kRun, message);
}

int open_file(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
  if (fd < 0) fail_io("open", path);
  return fd;
}

}  // namespace

std::string read_text_file(const std::string& path) {
  const File file(path, File::Mode::kRead);
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(std::as_writable_bytes(std::span(text)), 0);
  return text;
}

void write_file_atomically(const std::string& path, std::string_view content) {
  const std::string partial = path + ".partial";
  try {
    File file(partial, File::Mode::kCreate);
    file.write(std::as_bytes(std::span(content)), 0);
    file.sync();
    if (::rename(partial.c_str(), path.c_str()) != 0) fail_io("rename to", path);
  } catch (const Error&) {
    ::unlink(partial.c_str());
    throw;
  }
  sync_folder(std::filesystem::path(path).parent_path().string());
}

void sync_folder(const std::string& path) {
  const std::string folder = path.empty() ? "." : path;
  const int fd = open_file(folder, O_RDONLY | O_DIRECTORY);
  const int status = ::fsync(fd);
  ::close(fd);
  if (status != 0) fail_io("sync", folder);
}

FolderLock::FolderLock(const std::string& path) : fd_(open_file(path, O_RDONLY | O_DIRECTORY)) {
  while (::flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
  }
}

FolderLock::~FolderLock() {
  ::close(fd_);
}

void require_folder_can_be_made(const std::string& path, std::string_view asked) {
  namespace fs = std::filesystem;
  if (path.empty()) fail_user("{} is empty; give a folder", asked);
  std::error_code error;
  fs::path at = fs::absolute(path, error).lexically_normal();
  while (!fs::exists(at, error) && at.has_relative_path()) {
    at = at.parent_path();
  }
  if (!fs::is_directory(at, error)) {
    fail_user("{}='{}' cannot be a folder: {} is a file; give another", asked, path, at.string());
  }
  if (::access(at.c_str(), W_OK | X_OK) != 0) {
    fail_user("{}='{}': {} cannot be written to: {}; give another", asked, path, at.string(),
              std::strerror(errno));
  }
}

void require_file_can_be_made(const std::string& path, std::string_view asked) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    fail_user("{}='{}' is a folder; give the name of a file", asked, path);
  }
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder, error)) {
    fail_user("{}='{}': the folder {} does not exist; make it first", asked, path, folder.string());
  }
  require_folder_can_be_made(folder.empty() ? "." : folder.string(), asked);
}

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int fd = open_file(path, O_RDONLY);
  struct stat info = {};
  if (::fstat(fd, &info) != 0 || S_ISDIR(info.st_mode)) {
    if (S_ISDIR(info.st_mode)) errno = EISDIR;
    ::close(fd);
    fail_io("read", path);
  }
  size_ = static_cast<std::size_t>(info.st_size);
  if (size_ > 0) {
    void* data = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
      ::close(fd);
      fail_io("map", path);
    }
    data_ = static_cast<const std::byte*>(data);
  }
  ::close(fd);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

File::File(const std::string& path, Mode mode) : path_(path) {
  const int flags = mode == Mode::kRead    ? O_RDONLY
                    : mode == Mode::kWrite ? O_RDWR
                                           : O_RDWR | O_CREAT | O_TRUNC;
  fd_ = open_file(path, flags);
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)) {}

std::int64_t File::size() const {
  struct stat info = {};
  if (::fstat(fd_, &info) != 0) fail_io("look at", path_);
  if (S_ISDIR(info.st_mode)) {
    errno = EISDIR;
    fail_io("read", path_);
  }
  return info.st_size;
}

void File::resize(std::int64_t bytes) {
  if (::ftruncate(fd_, bytes) != 0) fail_io("resize", path_);
  const int status = bytes == 0 ? 0 : ::posix_fallocate(fd_, 0, bytes);
  if (status != 0 && status != EOPNOTSUPP && status != EINVAL) {
    errno = status;
    fail_io("reserve space for", path_);
  }
}

void File::read(std::span<std::byte> into, std::int64_t offset) const {
  while (!into.empty()) {
    const ssize_t done = ::pread(fd_, into.data(), into.size(), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail_io("read", path_);
    if (done == 0) {
      fail_user("{} ends at byte {}, {} more were expected; the file is truncated", path_, offset,
                into.size());
    }
    into = into.subspan(static_cast<std::size_t>(done));
    offset += done;
  }
}

void File::write(std::span<const std::byte> from, std::int64_t offset) {
  while (!from.empty()) {
    const ssize_t done = ::pwrite(fd_, from.data(), from.size(), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail_io("write", path_);
    from = from.subspan(static_cast<std::size_t>(done));
    offset += done;
  }
}

void File::append(std::string_view text) {
  write(std::as_bytes(std::span(text)), size());
}

void File::sync() {
  if (::fsync(fd_) != 0) fail_io("sync", path_);
}

}  // namespace orthant
