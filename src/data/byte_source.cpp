// zlib and libzstd stay in this file. Both read several compressed parts behind one another, as
// their tools write them.
#include "data/byte_source.h"

#include <algorithm>
#include <string>
#include <vector>

#include <zlib.h>
#include <zstd.h>

#include "base/check.h"
#include "base/file.h"

namespace orthant {
namespace {

constexpr std::size_t kBufferBytes = 1 << 18;

class PlainSource final : public ByteSource {
 public:
  explicit PlainSource(const std::string& path)
      : file_(path, File::Mode::kRead),
        size_(file_.size()) {}

  std::size_t read(std::span<char> into) override {
    const auto rest = static_cast<std::size_t>(size_ - done_);
    const std::span<char> part = into.first(std::min(into.size(), rest));
    file_.read(std::as_writable_bytes(part), done_);
    done_ += static_cast<std::int64_t>(part.size());
    return part.size();
  }
  std::int64_t bytes_read() const override { return done_; }

 private:
  File file_;
  std::int64_t size_;
  std::int64_t done_ = 0;
};

// The compressed bytes that a decoder has not taken yet.
class CompressedBytes {
 public:
  explicit CompressedBytes(const std::string& path) : source_(path), buffer_(kBufferBytes) {}

  // Not empty, unless the file is at its end.
  std::span<const char> rest() {
    if (begin_ == end_) {
      begin_ = 0;
      end_ = source_.read(buffer_);
    }
    return std::span<const char>(buffer_).subspan(begin_, end_ - begin_);
  }
  void take(std::size_t count) { begin_ += count; }
  std::int64_t bytes_read() const {
    return source_.bytes_read() - static_cast<std::int64_t>(end_ - begin_);
  }

 private:
  PlainSource source_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

[[noreturn]] void fail_damaged(const std::string& path, std::int64_t at, std::string_view why) {
  fail_user("{}: the compressed data is damaged near byte {} ({}); copy or compress it again", path,
            at, why);
}

[[noreturn]] void fail_cut_off(const std::string& path, std::int64_t at) {
  fail_user("{}: the compressed data ends at byte {} in the middle; copy or compress it again",
            path, at);
}

class GzipSource final : public ByteSource {
 public:
  explicit GzipSource(const std::string& path) : path_(path), bytes_(path) {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    ORTHANT_CHECK(inflateInit2(&stream_, kGzipOnly) == Z_OK, "zlib: no memory");
  }
  ~GzipSource() override { inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  std::size_t read(std::span<char> into) override {
    std::size_t done = 0;
    while (done < into.size()) {
      const std::span<const char> rest = bytes_.rest();
      if (rest.empty()) {
        if (!is_between_) fail_cut_off(path_, bytes_.bytes_read());
        break;
      }
      if (is_between_ && rest.front() == '\0') {  // tapes pad with zeros
        bytes_.take(1);
        continue;
      }
      is_between_ = false;
      done += inflate_some(rest, into.subspan(done));
    }
    return done;
  }
  std::int64_t bytes_read() const override { return bytes_.bytes_read(); }

 private:
  std::size_t inflate_some(std::span<const char> from, std::span<char> into) {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(from.data()));
    stream_.avail_in = static_cast<uInt>(from.size());
    const auto most = static_cast<uInt>(std::min<std::size_t>(into.size(), 1 << 30));
    stream_.next_out = reinterpret_cast<Bytef*>(into.data());
    stream_.avail_out = most;
    const int status = inflate(&stream_, Z_NO_FLUSH);
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) {
      fail_damaged(path_, bytes_.bytes_read(), stream_.msg == nullptr ? "zlib" : stream_.msg);
    }
    bytes_.take(from.size() - stream_.avail_in);
    if (status == Z_STREAM_END) {
      inflateReset(&stream_);
      is_between_ = true;
    }
    return most - stream_.avail_out;
  }

  std::string path_;
  CompressedBytes bytes_;
  z_stream stream_ = {};
  bool is_between_ = true;  // one part has ended, or none has begun
};

class ZstdSource final : public ByteSource {
 public:
  explicit ZstdSource(const std::string& path)
      : path_(path),
        bytes_(path),
        context_(ZSTD_createDCtx()) {
    ORTHANT_CHECK(context_ != nullptr, "zstd: no memory");
  }
  ~ZstdSource() override { ZSTD_freeDCtx(context_); }
  ZstdSource(const ZstdSource&) = delete;
  ZstdSource& operator=(const ZstdSource&) = delete;

  std::size_t read(std::span<char> into) override {
    std::size_t done = 0;
    while (done < into.size()) {
      const std::span<const char> rest = bytes_.rest();
      if (rest.empty() && !has_output_) {
        if (!is_between_) fail_cut_off(path_, bytes_.bytes_read());
        break;
      }
      ZSTD_inBuffer in = {rest.data(), rest.size(), 0};
      ZSTD_outBuffer out = {into.data() + done, into.size() - done, 0};
      const std::size_t status = ZSTD_decompressStream(context_, &out, &in);
      if (ZSTD_isError(status) != 0) {
        fail_damaged(path_, bytes_.bytes_read(), ZSTD_getErrorName(status));
      }
      bytes_.take(in.pos);
      done += out.pos;
      is_between_ = status == 0;
      has_output_ = out.pos == out.size && status != 0;  // the decoder may hold more
    }
    return done;
  }
  std::int64_t bytes_read() const override { return bytes_.bytes_read(); }

 private:
  std::string path_;
  CompressedBytes bytes_;
  ZSTD_DCtx* context_;
  bool is_between_ = true;
  bool has_output_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> open_source(const InputFile& file) {
  switch (file.compression) {
    case Compression::kGzip: return std::make_unique<GzipSource>(file.path);
    case Compression::kZstd: return std::make_unique<ZstdSource>(file.path);
    case Compression::kNone: break;
  }
  return std::make_unique<PlainSource>(file.path);
}

void skip(ByteSource& source, std::int64_t bytes) {
  std::vector<char> buffer(kBufferBytes);
  while (bytes > 0) {
    const auto size = static_cast<std::size_t>(
        std::min<std::int64_t>(bytes, static_cast<std::int64_t>(buffer.size())));
    const std::size_t done = source.read(std::span(buffer).first(size));
    ORTHANT_CHECK(done > 0, "input: it ends {} bytes before the place to go on from", bytes);
    bytes -= static_cast<std::int64_t>(done);
  }
}

}  // namespace orthant
