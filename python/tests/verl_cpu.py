"""A platform of verl on a CPU: what `VERL_USE_EXTERNAL_MODULES=verl_cpu VERL_PLATFORM=cpu` makes of its engines."""

import torch
from verl.plugin.platform.platform_cuda import PlatformCUDA
from verl.plugin.platform.platform_manager import PlatformRegistry


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformCUDA):
    device_name, vendor_name, device_module = "cpu", "cpu", torch.cpu

    def is_available(self):
        return True

    def current_device(self):
        return "cpu"

    def communication_backend_name(self):
        return "gloo"

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def synchronize(self, device_index=None):
        pass

    empty_cache = synchronize
