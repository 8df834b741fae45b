// The update of SignSGD for GPUs.
#include <tandem/optim/define_optimizer_cuda.h>

#include "sign_sgd.h"

namespace extension {

TANDEM_DEFINE_OPTIMIZER(SignSGD, SignSGDRule)

}  // namespace extension
