#include "comm/tcp/socket.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace orthant {
namespace {

int left_ms(Board::Clock::time_point end) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(end - Board::Clock::now());
  constexpr std::int64_t kMost = 1'000'000;
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, kMost));
}

// Frames are small and waited for.
void send_at_once(const Socket& socket) {
  const int yes = 1;
  ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

Endpoint endpoint_of(const sockaddr_in6& address) {
  Endpoint endpoint;
  std::memcpy(endpoint.address.data(), &address.sin6_addr, endpoint.address.size());
  endpoint.port = ntohs(address.sin6_port);
  return endpoint;
}

Socket connected(int family, const sockaddr* address, socklen_t size) {
  Socket socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.is_open() || ::connect(socket.fd(), address, size) != 0) return Socket();
  send_at_once(socket);
  return socket;
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

Socket listen_at(int port) {
  Socket socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  const int no = 0;
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  ::setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_any;
  address.sin6_port = htons(static_cast<std::uint16_t>(port));
  if (!socket.is_open() ||
      ::bind(socket.fd(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(socket.fd(), SOMAXCONN) != 0) {
    return Socket();
  }
  return socket;
}

Socket accept_at(const Socket& listening, Board::Clock::time_point end) {
  pollfd ready = {.fd = listening.fd(), .events = POLLIN, .revents = 0};
  if (::poll(&ready, 1, left_ms(end)) <= 0) return Socket();
  Socket socket(::accept4(listening.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (socket.is_open()) send_at_once(socket);
  return socket;
}

int port_of(const Socket& listening) {
  sockaddr_in6 address = {};
  socklen_t size = sizeof(address);
  ::getsockname(listening.fd(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin6_port);
}

Endpoint peer_of(const Socket& socket) {
  sockaddr_in6 address = {};
  socklen_t size = sizeof(address);
  ::getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size);
  return endpoint_of(address);
}

Endpoint own_end_of(const Socket& socket) {
  sockaddr_in6 address = {};
  socklen_t size = sizeof(address);
  ::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size);
  return endpoint_of(address);
}

Socket connect_to(const Endpoint& endpoint) {
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  std::memcpy(&address.sin6_addr, endpoint.address.data(), endpoint.address.size());
  address.sin6_port = htons(endpoint.port);
  return connected(AF_INET6, reinterpret_cast<sockaddr*>(&address), sizeof(address));
}

Socket connect_to(const std::string& host, int port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), fmt::format("{}", port).c_str(), &hints, &found) != 0) {
    return Socket();
  }
  Socket socket;
  for (const addrinfo* at = found; at != nullptr && !socket.is_open(); at = at->ai_next) {
    socket = connected(at->ai_family, at->ai_addr, at->ai_addrlen);
  }
  ::freeaddrinfo(found);
  return socket;
}

bool read_whole(const Socket& socket, std::span<std::byte> to, Board::Clock::time_point end) {
  for (std::size_t done = 0; done < to.size();) {
    pollfd ready = {.fd = socket.fd(), .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, left_ms(end)) <= 0) return false;
    const ssize_t count = ::recv(socket.fd(), to.data() + done, to.size() - done, 0);
    if (count <= 0) return false;
    done += static_cast<std::size_t>(count);
  }
  return true;
}

void write_whole(const Socket& socket, std::span<const std::byte> from) {
  for (std::size_t done = 0; done < from.size();) {
    const ssize_t count = ::send(socket.fd(), from.data() + done, from.size() - done, MSG_NOSIGNAL);
    if (count <= 0) return;
    done += static_cast<std::size_t>(count);
  }
}

}  // namespace orthant
