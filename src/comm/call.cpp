#include "comm/call.h"

#include <algorithm>

#include <fmt/format.h>

namespace orthant {
namespace {

using Kind = Call::Kind;

bool same_form(const Tensor& a, const Tensor& b) {
  return a.dtype == b.dtype && a.shape == b.shape;
}

std::string form_of(const Tensor& tensor) {
  return fmt::format("{} {}", tensor.shape.text(), name_of(tensor.dtype));
}

}  // namespace

Place::Place(std::string_view name)
    : size_(static_cast<std::uint8_t>(std::min(name.size(), sizeof(text_)))) {
  std::copy_n(name.begin(), size_, text_);
}

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::kAllReduce: return "all_reduce";
    case Kind::kAllGather: return "all_gather";
    case Kind::kReduceScatter: return "reduce_scatter";
    case Kind::kBroadcast: return "broadcast";
    case Kind::kSend: return "send";
    case Kind::kRecv: return "recv";
    case Kind::kBarrier: return "barrier";
  }
  return "?";
}

bool is_message(Kind kind) {
  return kind == Kind::kSend || kind == Kind::kRecv;
}

bool reads_in(Kind kind) {
  return kind == Kind::kAllGather || kind == Kind::kReduceScatter || kind == Kind::kSend;
}

bool writes_out(Kind kind) {
  return kind != Kind::kSend && kind != Kind::kBarrier;
}

std::string text_of(Kind kind, const Place& where) {
  return where.text().empty() ? std::string(name_of(kind))
                              : fmt::format("{} '{}'", name_of(kind), where.text());
}

std::string details_of(const Call& call) {
  std::string text = text_of(call.kind, call.where);
  switch (call.kind) {
    case Kind::kAllReduce:
      return text + (call.reduce == Reduce::kMax ? " (max) of " : " (sum) of ") + form_of(call.out);
    case Kind::kAllGather:
    case Kind::kReduceScatter:
      return text + " of " + form_of(call.out) + " from " + form_of(call.in);
    case Kind::kBroadcast:
      return text + fmt::format(" of {} from rank {}", form_of(call.out), call.peer);
    case Kind::kSend:
      return text + fmt::format(" of {}, identity {}", form_of(call.in), call.identity);
    case Kind::kRecv:
      return text + fmt::format(" of {}, identity {}", form_of(call.out), call.identity);
    case Kind::kBarrier: return text;
  }
  return text;
}

bool agree(const Call& a, const Call& b) {
  return a.kind == b.kind && a.sequence == b.sequence && a.reduce == b.reduce && a.peer == b.peer &&
         same_form(a.out, b.out) && same_form(a.in, b.in) && a.where == b.where;
}

bool match(const Call& send, const Call& recv) {
  return send.kind == Kind::kSend && recv.kind == Kind::kRecv && send.sequence == recv.sequence &&
         send.identity == recv.identity && send.in.dtype == recv.out.dtype &&
         send.in.count() == recv.out.count();
}

}  // namespace orthant
