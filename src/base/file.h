// Files: whole reads, mmap, positional reads and writes, write-then-rename, and folders that are
// locked. Every error names the path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace orthant {

std::string read_text_file(const std::string& path);  // throws a user error when it cannot be read

// Writes `path`.partial, syncs it, renames it to `path` and syncs the folder: readers see all or
// nothing.
void write_file_atomically(const std::string& path, std::string_view content);

void sync_folder(const std::string& path);

// Waits for every other that has the same folder, also in another process: between reading a file
// and writing it again. Where the file system knows no locks it waits for nobody.
class FolderLock {
 public:
  explicit FolderLock(const std::string& path);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_ = -1;
};

// A user error when `path` cannot become a folder that can be written to; makes nothing. `asked` is
// for messages: "log.dir".
void require_folder_can_be_made(const std::string& path, std::string_view asked);
// The same for a file that is to be written.
void require_file_can_be_made(const std::string& path, std::string_view asked);

// A file mapped for reading.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// An open file for positional reads or writes; short transfers are continued, errors are thrown
// with the path.
class File {
 public:
  enum class Mode {
    kRead,
    kWrite,
    kCreate
  };  // kWrite opens what exists; kCreate makes or truncates

  File(const std::string& path, Mode mode);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&&) = delete;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  std::int64_t size() const;
  void resize(std::int64_t bytes);  // reserves the space, so that a full disk shows here and not in
                                    // the middle
  void read(std::span<std::byte> into, std::int64_t offset) const;
  void write(std::span<const std::byte> from, std::int64_t offset);
  void append(std::string_view text);
  void sync();

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace orthant
