#include "comm/tcp/tcp_wires.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

namespace orthant {
namespace {

enum class Kind : std::uint32_t {
  kData,    // of a channel
  kCredit,  // so many bytes of a channel were read
  kSign,    // RankStatus of the sender
  kFailure  // text
};
struct FrameHead {
  Kind kind;
  std::uint32_t channel;
  std::uint32_t bytes;
};

// Of a channel and direction: what one push can be, and how much may be unread.
constexpr std::size_t kPushBytes = std::size_t{64} << 10;
constexpr std::size_t kWindowBytes = 4 * kPushBytes;

// Bytes that come at the end and go at the front. It keeps its memory.
class ByteQueue {
 public:
  explicit ByteQueue(std::size_t capacity) { bytes_.reserve(capacity); }
  bool empty() const { return first_ == bytes_.size(); }
  std::span<const std::byte> front() const { return std::span(bytes_).subspan(first_); }
  void push(std::span<const std::byte> more) {
    if (bytes_.size() + more.size() > bytes_.capacity()) move_to_front();
    bytes_.insert(bytes_.end(), more.begin(), more.end());
  }
  void pop(std::size_t count) {
    first_ += count;
    if (empty()) move_to_front();
  }
  // Calls fill(room) for `count` bytes behind the last; it returns how many it has written.
  template <class Fill>
  void push_up_to(std::size_t count, const Fill& fill) {
    if (bytes_.size() + count > bytes_.capacity()) move_to_front();
    const std::size_t before = bytes_.size();
    bytes_.resize(before + count);
    bytes_.resize(before + fill(std::span(bytes_).subspan(before)));
  }

 private:
  void move_to_front() {
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
  std::vector<std::byte> bytes_;
  std::size_t first_ = 0;
};

// Bytes of one other rank.
class Peer {
 public:
  explicit Peer(Socket socket) : socket_(std::move(socket)) {
    if (!socket_.is_open()) return;
    ::fcntl(socket_.fd(), F_SETFL, ::fcntl(socket_.fd(), F_GETFL) | O_NONBLOCK);
  }
  int fd() const { return socket_.fd(); }
  bool is_open() const { return socket_.is_open(); }
  bool has_unsent() const { return !outgoing_.empty(); }

  void send(const FrameHead& head, std::span<const std::byte> bytes) {
    outgoing_.push(std::as_bytes(std::span(&head, 1)));
    outgoing_.push(bytes);
    flush();
  }
  void flush() {
    while (is_open() && has_unsent()) {
      const std::span<const std::byte> rest = outgoing_.front();
      const ssize_t count = ::send(fd(), rest.data(), rest.size(), MSG_NOSIGNAL);
      if (count <= 0) return;
      outgoing_.pop(static_cast<std::size_t>(count));
    }
  }
  // Calls take(head, bytes) for each whole frame. False: the other side has gone.
  template <class Take>
  bool receive(const Take& take) {
    for (;;) {
      ssize_t count = 0;
      incoming_.push_up_to(kPushBytes, [&](std::span<std::byte> room) {
        count = ::recv(fd(), room.data(), room.size(), 0);
        return static_cast<std::size_t>(std::max<ssize_t>(count, 0));
      });
      if (count == 0) return false;
      if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
      take_frames(take);
    }
  }
  void close() { socket_ = Socket(); }
  void end_sending() const { ::shutdown(fd(), SHUT_WR); }

 private:
  template <class Take>
  void take_frames(const Take& take) {
    FrameHead head;
    while (incoming_.front().size() >= sizeof(head)) {
      std::memcpy(&head, incoming_.front().data(), sizeof(head));
      if (incoming_.front().size() - sizeof(head) < head.bytes) return;
      take(head, incoming_.front().subspan(sizeof(head), head.bytes));
      incoming_.pop(sizeof(head) + head.bytes);
    }
  }

  Socket socket_;
  ByteQueue outgoing_{2 * kWindowBytes + kPushBytes};
  ByteQueue incoming_{4 * kPushBytes};
};

// A channel between this rank and another.
class TcpLink final : public Link {
 public:
  TcpLink(Peer& peer, std::uint32_t channel) : peer_(peer), channel_(channel), out_(kPushBytes) {}

  std::span<std::byte> room() override {
    return in_flight_ + kPushBytes <= kWindowBytes ? std::span(out_) : std::span<std::byte>();
  }
  void push(std::size_t bytes) override {
    in_flight_ += bytes;
    peer_.send({Kind::kData, channel_, static_cast<std::uint32_t>(bytes)},
               std::span(out_).first(bytes));
  }
  std::span<const std::byte> front() override { return in_.front(); }
  void pop(std::size_t bytes) override {
    in_.pop(bytes);
    unsaid_ += bytes;
    if (unsaid_ < kPushBytes && !in_.empty()) return;
    const auto count = static_cast<std::uint32_t>(std::exchange(unsaid_, 0));
    peer_.send({Kind::kCredit, channel_, sizeof(count)}, std::as_bytes(std::span(&count, 1)));
  }
  void take(std::span<const std::byte> bytes) { in_.push(bytes); }
  void credit(std::size_t bytes) { in_flight_ -= bytes; }

 private:
  Peer& peer_;
  std::uint32_t channel_;
  std::vector<std::byte> out_;
  std::size_t in_flight_ = 0;                // sent and not said to be read
  ByteQueue in_{kWindowBytes + kPushBytes};  // unread: no more than the window
  std::size_t unsaid_ = 0;                   // read, without a credit
};

// A channel outlives the groups that use it: what is under way may be the next group's.
class SharedLink final : public Link {
 public:
  explicit SharedLink(TcpLink& link) : link_(link) {}
  std::span<std::byte> room() override { return link_.room(); }
  void push(std::size_t bytes) override { link_.push(bytes); }
  std::span<const std::byte> front() override { return link_.front(); }
  void pop(std::size_t bytes) override { link_.pop(bytes); }

 private:
  TcpLink& link_;
};

class TcpWires final : public Wires {
 public:
  TcpWires(std::vector<Socket> sockets, int rank, int num_local)
      : rank_(rank),
        num_local_(num_local),
        board_memory_(static_cast<std::size_t>(Board::bytes(static_cast<int>(sockets.size()))) /
                      sizeof(std::uint64_t)),
        board_(reinterpret_cast<std::byte*>(board_memory_.data()), static_cast<int>(sockets.size()),
               Board::Use::kReset) {
    peers_.reserve(sockets.size());
    for (Socket& socket : sockets) {
      peers_.emplace_back(std::move(socket));
    }
  }
  // What has been sent is read by the others before the sockets go; whoever does not end is left.
  ~TcpWires() override {
    constexpr double kMostS = 5;
    const auto end = after(Board::Clock::now(), kMostS);
    flush_all(end);
    for (Peer& peer : peers_) {
      if (peer.is_open()) peer.end_sending();
    }
    const auto is_open = [](const Peer& peer) {
      return peer.is_open();
    };
    while (std::any_of(peers_.begin(), peers_.end(), is_open) && Board::Clock::now() < end) {
      for (Peer& peer : peers_) {
        const auto ignore = [](const FrameHead&, std::span<const std::byte>) {
        };
        if (peer.is_open() && !peer.receive(ignore)) peer.close();
      }
      poll_for(0.01);
    }
  }
  TcpWires(const TcpWires&) = delete;
  TcpWires& operator=(const TcpWires&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return board_.size(); }
  int num_local() const override { return num_local_; }
  Transport transport() const override { return Transport::kSockets; }
  int num_cores() const override { return static_cast<int>(std::thread::hardware_concurrency()); }
  std::unique_ptr<Link> link(int peer, int channel, int /*share*/) override {
    return std::make_unique<SharedLink>(link_of(peer, static_cast<std::uint32_t>(channel)));
  }
  Board& board() override { return board_; }

  std::uint32_t ticket() override {
    send_sign_now_and_then();
    pump();
    return 0;
  }
  void sleep(std::uint32_t /*ticket*/, Board::Clock::time_point until) override {
    constexpr double kMostS = 0.2;
    send_sign_now_and_then();
    const double left_s = std::chrono::duration<double>(until - Board::Clock::now()).count();
    poll_for(std::clamp(left_s, 0.0, kMostS));
    pump();
  }
  void announce_sign() override {
    const bool is_long = board_.status(rank_).busy_s > board_.deadline_s() / 2;
    is_long ? send_sign() : send_sign_now_and_then();
  }
  void announce_end() override {
    constexpr double kMostS = 5;
    send_sign();
    flush_all(after(Board::Clock::now(), kMostS));
  }
  void announce_failure(Fault /*fault*/) noexcept override {
    constexpr double kMostS = 1;
    const std::string text = board_.failure();
    send_to_all({Kind::kFailure, 0, static_cast<std::uint32_t>(text.size())},
                std::as_bytes(std::span(text)));
    flush_all(after(Board::Clock::now(), kMostS));
  }

 private:
  TcpLink& link_of(int peer, std::uint32_t channel) {
    const std::pair key(peer, channel);
    return links_.try_emplace(key, peers_[static_cast<std::size_t>(peer)], channel).first->second;
  }
  void send_to_all(const FrameHead& head, std::span<const std::byte> bytes) {
    for (Peer& peer : peers_) {
      if (peer.is_open()) peer.send(head, bytes);
    }
  }
  void send_sign() {
    sign_sent_ = Board::Clock::now();
    const RankStatus status = board_.status(rank_);
    send_to_all({Kind::kSign, 0, sizeof(status)}, std::as_bytes(std::span(&status, 1)));
  }
  // Not more often than is needed to hold the deadline off.
  void send_sign_now_and_then() {
    constexpr double kMostS = 1;
    constexpr double kShare = 8;
    const double every_s = std::min(kMostS, board_.deadline_s() / kShare);
    if (Board::Clock::now() >= after(sign_sent_, every_s)) send_sign();
  }
  void take(int from, const FrameHead& head, std::span<const std::byte> bytes) {
    switch (head.kind) {
      case Kind::kData: return link_of(from, head.channel).take(bytes);
      case Kind::kCredit: return link_of(from, head.channel).credit(bytes_of_credit(bytes));
      case Kind::kSign: {
        RankStatus status;
        std::memcpy(static_cast<void*>(&status), bytes.data(), sizeof(status));
        return board_.note(from, status);
      }
      case Kind::kFailure:
        board_.report(from, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
        return;
    }
  }
  static std::size_t bytes_of_credit(std::span<const std::byte> bytes) {
    std::uint32_t count = 0;
    std::memcpy(&count, bytes.data(), sizeof(count));
    return count;
  }
  // All that can be read and written now.
  void pump() {
    for (std::size_t other = 0; other < peers_.size(); ++other) {
      Peer& peer = peers_[other];
      const int from = static_cast<int>(other);
      const auto take_frame = [&](const FrameHead& head, std::span<const std::byte> bytes) {
        take(from, head, bytes);
      };
      if (!peer.is_open()) continue;
      peer.flush();
      if (!peer.receive(take_frame)) lose(from);
    }
  }
  void lose(int other) {
    peers_[static_cast<std::size_t>(other)].close();
    if (board_.status(other).has_ended || board_.has_failed()) return;
    const std::string message =
        fmt::format("rank {} was lost: its process has ended without a word; {}", other,
                    board_.describe(other));
    if (!board_.report(rank_, message)) return;
    announce_failure(Fault::kLost);
    throw Error(Fault::kLost, message);
  }
  void poll_for(double seconds) {
    constexpr double kMs = 1e3;
    std::vector<pollfd> ready;
    for (const Peer& peer : peers_) {
      if (!peer.is_open()) continue;
      const auto events = static_cast<short>(POLLIN | (peer.has_unsent() ? POLLOUT : 0));
      ready.push_back({.fd = peer.fd(), .events = events, .revents = 0});
    }
    ::poll(ready.data(), ready.size(), static_cast<int>(seconds * kMs));
  }
  void flush_all(Board::Clock::time_point end) noexcept {
    const auto has_unsent = [](const Peer& peer) {
      return peer.is_open() && peer.has_unsent();
    };
    while (std::any_of(peers_.begin(), peers_.end(), has_unsent) && Board::Clock::now() < end) {
      for (Peer& peer : peers_) {
        peer.flush();
      }
      std::this_thread::yield();
    }
  }

  int rank_;
  int num_local_;
  std::vector<std::uint64_t> board_memory_;
  Board board_;
  std::vector<Peer> peers_;
  std::map<std::pair<int, std::uint32_t>, TcpLink> links_;  // by peer and channel
  Board::Clock::time_point sign_sent_{};  // long ago: the first call is told at once
};

}  // namespace

std::unique_ptr<Wires> make_tcp_wires(std::vector<Socket> sockets, int rank, int num_local) {
  return std::make_unique<TcpWires>(std::move(sockets), rank, num_local);
}

}  // namespace orthant
