// StreamCommunicator: collectives and messages as streams of bytes between pairs of ranks. Each
// call is a frame in each stream that it uses: the call itself, by which the other side sees a
// divergence, then data. Sums are made of what all others have sent, in rank order. Where tensors
// lie on GPUs a frame says where, and DeviceLinks move them.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/device_links.h"
#include "comm/stream/stream_rank.h"

namespace orthant {

class StreamCommunicator final : public Communicator {
 public:
  StreamCommunicator(StreamRank& stream_rank, std::string name, std::vector<int> members, int rank,
                     int lane, const CommParts& parts);
  ~StreamCommunicator() override;
  StreamCommunicator(const StreamCommunicator&) = delete;
  StreamCommunicator& operator=(const StreamCommunicator&) = delete;

  void sign_of_life(double busy_s) override { stream_rank_.sign_of_life(busy_s); }
  void throw_if_failed() override { stream_rank_.throw_if_failed(); }
  void connect() override;
  void connect_ring() override;
  std::unique_ptr<Communicator> subgroup(std::string name, std::vector<int> members,
                                         int lane) override;

  bool progress();  // false: nothing could be moved
  bool is_done(const Call& call) const;
  std::vector<int> missing(const Call& call);  // world ranks that it waits for
  // All have come to it and to those before it, and the links of one are not ready.
  bool is_connecting(const Call& call) const;

 private:
  struct alignas(Wires::kGrain) Head {
    Call call;
    Place group;
  };
  static constexpr auto kHeadBytes = static_cast<std::int64_t>(sizeof(Head));

  // A frame in each direction between this rank and one other. What is sent second are sums, as far
  // as they are made.
  struct Exchange {
    bool has_out = false;
    bool has_in = false;
    std::span<const std::byte> first_out;
    std::span<const std::byte> second_out;
    std::span<std::byte> first_in;  // or as many bytes of the stream are summed
    std::span<std::byte> second_in;
    std::int64_t sums_in = 0;
    std::int64_t sent = 0;
    std::int64_t received = 0;
    Head theirs;

    std::int64_t out_bytes() const;
    std::int64_t in_bytes() const;
    bool is_done() const { return sent == out_bytes() && received == in_bytes(); }
  };
  struct Active {
    Head mine;
    Posting posted;                   // by links: what this rank says of the call, and ...
    std::vector<Posting> postings;    // ... by group rank the others
    std::vector<Exchange> exchanges;  // by group rank
    // The bytes of `sum_to` are made of this rank's and of those that come from all others.
    std::span<const std::byte> sum_from;
    std::span<std::byte> sum_to;
    std::int64_t summed = 0;
    bool is_in_place = false;  // sum_to is what the others get: they get it first
    bool is_queued = false;    // by links
  };

  void do_start(const Call& call, Token token) override;
  void do_wait(const Call& call, Token token) override;

  // Calls that others must have posted too before links move them.
  bool is_linked(const Call& call) const {
    return parts().links != nullptr && call.kind != Call::Kind::kBarrier;
  }
  // Frames of collectives, of sends, and of receives, which a sender hears of where links move
  // data.
  static constexpr std::size_t kNumChannels = 3;
  static std::size_t channel_out(const Call& call);
  static std::size_t channel_in(const Call& call);

  std::unique_ptr<DeviceCarrier> make_carrier();
  void plan(Active& active);
  void plan_frames(Active& active);
  void plan_reduce(Active& active);
  bool step(Active& active);
  bool queue(Active& active);
  bool send(Active& active, std::size_t peer, Link& link);
  bool receive(Active& active, std::size_t peer, Link& link);
  bool sum(Active& active);
  std::span<const std::byte> outgoing(const Active& active, const Exchange& exchange) const;
  bool has_exchanged(const Active& active) const;
  bool is_before(const Call& earlier, const Call& call) const;
  void append_missing(const Active& active, std::vector<int>& missing);
  void check_head(const Active& active, std::size_t peer);
  const Active& find(const Call& call) const;
  Link& link(std::size_t channel, std::size_t peer);

  StreamRank& stream_rank_;
  int lane_;
  int exceptions_;
  std::unique_ptr<DeviceCarrier> carrier_;                              // made by the first call
  std::array<std::vector<std::unique_ptr<Link>>, kNumChannels> links_;  // made when they are used
  std::vector<std::unique_ptr<Active>> active_;  // in the order of their start
  std::vector<std::unique_ptr<Active>> free_;
  // Of a channel and peer: an earlier call has not ended there.
  std::array<std::vector<char>, kNumChannels> is_sending_;
  std::array<std::vector<char>, kNumChannels> is_receiving_;
  std::array<std::vector<char>, kNumChannels> is_connecting_;
  std::vector<const std::byte*> inputs_;
};

}  // namespace orthant
