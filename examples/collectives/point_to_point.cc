// Point-to-point communication: send, recv and batch_isend_irecv.
#include <tandem/examples/collectives/operations.h>
#include <tandem/tandem.h>

namespace td = tandem;

using td::distributed::P2POp;
namespace examples {

OperationReport send_recv(const Setup& setup) {
  OperationReport report("send_recv", "group.send(x, dst);  group.recv(x, src)",
                         "a pipeline: each rank receives, adds one and sends");
  const td::Tensor x = td::zeros({1}, {.device = setup.device});
  report.show("before", x);
  if (setup.group.rank() > 0) setup.group.recv(x, setup.group.rank() - 1);
  x.add_(1);
  if (setup.group.rank() + 1 < setup.group.size()) setup.group.send(x, setup.group.rank() + 1);
  report.check("after", x, {setup.group.rank() + 1.0});
  return report;
}

OperationReport ring_shift(const Setup& setup) {
  OperationReport report("batch_isend_irecv", "group.batch_isend_irecv({{kSend, x, next}, {kRecv, y, previous}})",
                         "a ring: every rank sends to the next and receives from the previous at the same time");
  const int n = setup.group.size();
  const int next = (setup.group.rank() + 1) % n;
  const int previous = (setup.group.rank() + n - 1) % n;
  const td::Tensor x = td::full({2}, 1.0 * setup.group.rank(), {.device = setup.device});
  const td::Tensor y = td::zeros({2}, {.device = setup.device});
  if (n == 1) {
    y.copy_(x);  // a single rank cannot send to itself
  } else {
    const std::vector<td::Work> works =
        setup.group.batch_isend_irecv({{.kind = P2POp::Kind::kSend, .tensor = x, .peer = next},
                                       {.kind = P2POp::Kind::kRecv, .tensor = y, .peer = previous}});
    for (const td::Work& work : works) work.wait();
  }
  report.show("x", x);
  report.check("after", y, {1.0 * previous, 1.0 * previous});
  return report;
}

}  // namespace examples
