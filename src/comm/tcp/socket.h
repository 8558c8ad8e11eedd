// Socket: a file descriptor of one, closed with it, and whole values through it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "comm/board.h"

namespace orthant {

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_;
};

// Where a socket can be reached, the same bytes for all.
struct Endpoint {
  std::array<std::uint8_t, 16> address{};  // IPv6, or IPv4 within it
  std::uint16_t port = 0;
};

// Listens at a port of all addresses; 0: one that is free. Not open where that cannot be.
Socket listen_at(int port);
Socket accept_at(const Socket& listening, Board::Clock::time_point end);  // not open: nobody came
int port_of(const Socket& listening);
// The ends of a connection, with its ports.
Endpoint peer_of(const Socket& socket);
Endpoint own_end_of(const Socket& socket);
Socket connect_to(const Endpoint& endpoint);
Socket connect_to(const std::string& host, int port);  // not open: nobody is there

// The whole of so many bytes, or false.
bool read_whole(const Socket& socket, std::span<std::byte> to, Board::Clock::time_point end);
// Whoever has gone is seen by the next read.
void write_whole(const Socket& socket, std::span<const std::byte> from);

}  // namespace orthant
