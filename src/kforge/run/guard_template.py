def _kforge_guard(kind, verified):
    """Let `kind.forward` run in calls like those it was verified in; any other call raises one sentence.

    Native code reads memory by address: it sees neither another dtype nor another layout, and neither a tracer nor
    autograd sees what it does. The program itself may check none of that.
    """
    import functools
    import inspect
    import weakref

    import torch
    from torch.autograd import forward_ad
    from torch.utils import _pytree as pytree

    program = kind.forward
    name, device, specs, exact = (verified[key] for key in ("name", "device", "arguments", "exact_shapes"))
    state = [(label, getattr(torch, dtype), shape, stride) for label, dtype, shape, stride in verified["state"]]
    cure = "forge it again for that, or use the original module"
    no_gradient = (
        f"{name} is a forged program, verified for inference only: it has no gradient. Train with the original module, "
        "or call it under torch.no_grad()"
    )
    no_second_derivative = (
        f"{name} is a forged program, verified for first derivatives only: leave out create_graph, or use the original "
        "module"
    )
    not_traced = (
        f"{name} is a forged program whose native code no tracer can see into: trace or export the model with the "
        "original module in its place"
    )
    not_in_a_graph = (
        f"{name} is a forged program and cannot be part of a graph: compile without fullgraph=True, and it runs "
        "between two graphs"
    )
    plain = (torch.Tensor, torch.nn.Parameter)
    known_places = weakref.WeakKeyDictionary()

    def layout(dtype, shape, where):
        return f"{str(dtype).removeprefix('torch.')} {tuple(shape)} on {where}"

    def refuse(what, wanted, actual):
        raise ValueError(f"{what} must be {wanted}, and is {actual}: {name} was verified for nothing else; {cure}")

    def fit(value, spec, what):
        """The argument in the layout that was verified; ValueError or TypeError if it is another one."""
        form, content = spec[0], spec[1]
        if form == "tensor":
            return fit_tensor(value, spec, what)
        if form == "dtype":
            if value is not getattr(torch, content):
                refuse(what, content, repr(value)[:80])
            return value
        if form == "any":
            if content != "object" and type(value).__name__ != content:
                refuse(what, f"a {content}", repr(value)[:80])
            return value
        if form == "value":
            if type(value) is not type(content) or not (value == content or (value != value and content != content)):
                refuse(what, repr(content), repr(value)[:80])
            return value
        if form == "dict":
            if not isinstance(value, dict) or list(value) != [key for key, _ in content]:
                refuse(what, f"a dict of {[key for key, _ in content]}", repr(value)[:80])
            return {key: fit(value[key], item, f"{what}[{key!r}]") for key, item in content}
        wanted = list if form == "list" else tuple
        if not isinstance(value, wanted) or len(value) != len(content):
            refuse(what, f"a {form} of {len(content)}", repr(value)[:80])
        return wanted(fit(one, two, f"{what}[{i}]") for i, (one, two) in enumerate(zip(value, content)))  # noqa: B905

    def fit_tensor(tensor, spec, what):
        _, dtype, shape, stride = spec
        dtype = getattr(torch, dtype)
        if type(tensor) not in plain:
            odd = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
            raise TypeError(f"{what} is a {odd} and no plain tensor: {not_traced}")
        same = tensor.shape == shape if exact else tensor.dim() == len(shape)
        if tensor.dtype is not dtype or not same or tensor.device.type != device:
            refuse(what, layout(dtype, shape, device), layout(tensor.dtype, tensor.shape, tensor.device))
        if not exact:
            return tensor.contiguous()
        if tensor.stride() != stride or tensor.data_ptr() % 16:
            # Another layout of the same values is copied; where a vector may begin is part of it.
            return torch.empty_strided(shape, stride, dtype=dtype, device=tensor.device).copy_(tensor)
        return tensor

    def places(module):
        """Where each tensor of the module is kept, found once; a copy of the module finds its own."""
        known = known_places.get(module)
        if known is None or known[0] is not module._parameters:
            entries = []
            for label, *spec in state:
                *path, last = label.split(".")
                part = functools.reduce(lambda part, step: part and part._modules.get(step), path, module)
                held = [] if part is None else [some for some in (part._parameters, part._buffers) if last in some]
                if not held:
                    raise ValueError(f"the module has lost its {label}, which {name} was verified with: {cure}")
                entries.append((held[0], last, label, spec))
            # Not kept in the module: torch.export takes the module's attributes for its own.
            known = known_places[module] = (module._parameters, entries)
        return known[1]

    def check_state(module, where):
        for held, key, label, (dtype, shape, stride) in places(module):
            tensor = held.get(key)
            if type(tensor) not in plain:
                odd = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
                refuse(f"the module's {label}", "a plain tensor", f"a {odd}")
            same = tensor.shape == shape and tensor.stride() == stride if exact else True
            if (
                tensor.dtype is dtype
                and same
                and (where is None or tensor.device == where)
                and tensor.device.type == device
            ):
                continue
            wanted, actual = layout(dtype, shape, where or device), layout(tensor.dtype, tensor.shape, tensor.device)
            if wanted == actual:
                wanted, actual = f"{wanted} with strides {stride}", f"with strides {tensor.stride()}"
            refuse(f"the module's {label}", wanted, actual)

    def check_surroundings(module, where):
        if verified["training"] is not None and module.training is not verified["training"]:
            modes = {True: "training mode", False: "evaluation mode"}
            refuse("the module", f"in {modes[verified['training']]}", f"in {modes[module.training]}")
        if torch.get_default_dtype() is not torch.float32:
            refuse("torch's default dtype", "float32", str(torch.get_default_dtype()).removeprefix("torch."))
        if where is not None and where.type == "cuda" and where.index != torch.cuda.current_device():
            current = f"cuda:{torch.cuda.current_device()}"
            raise ValueError(f"the tensors are on {where} and the current device is {current}: use torch.cuda.device")

    def run_checked(module, arguments, named):
        """The program's result, in a call that it was verified for."""
        if specs is not None:
            if named:
                given = inspect.signature(program).bind(module, *arguments, **named)
                arguments, named = given.args[1:], given.kwargs
            if named or len(arguments) != len(specs):
                raise TypeError(
                    f"{name} was verified with {len(specs)} arguments, and is given {len(arguments)}: {cure}"
                )
            arguments = [fit(*both, f"argument {i}") for i, both in enumerate(zip(arguments, specs), 1)]  # noqa: B905
        devices = {leaf.device for leaf in pytree.tree_leaves((arguments, named)) if isinstance(leaf, torch.Tensor)}
        if len(devices) > 1:
            raise ValueError(f"the arguments are on several devices ({', '.join(sorted(map(str, devices)))})")
        where = next(iter(devices), None)
        check_state(module, where)
        check_surroundings(module, where)
        kind_of_device = where.type if where is not None else device
        if torch.is_autocast_enabled(kind_of_device):
            with torch.autocast(kind_of_device, enabled=False):
                return program(module, *arguments, **named)
        return program(module, *arguments, **named)

    def refuse_second_derivative(gradient):
        # Autograd takes note of a backward pass only where somebody wants to derive it once more.
        if torch.is_grad_enabled():
            raise RuntimeError(no_second_derivative)

    class Inference(torch.autograd.Function):
        """A call that autograd takes note of, so that asking for its gradient is an error and not a wrong one."""

        @staticmethod
        def forward(context, call, *followed):
            return tuple(call())

        @staticmethod
        def backward(context, *gradients):
            raise RuntimeError(no_gradient)

        @staticmethod
        def jvp(context, *tangents):
            raise RuntimeError(no_gradient)

    def enter(module, arguments, named):
        if torch.jit.is_tracing() or torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None:
            raise RuntimeError(not_traced)
        dual = forward_ad._current_level >= 0
        if not (dual or torch.is_grad_enabled()):
            return run_checked(module, arguments, named)
        leaves = [leaf for leaf in pytree.tree_leaves((arguments, named)) if isinstance(leaf, torch.Tensor)]
        followed = [tensor for tensor in [*leaves, *module.parameters()] if dual or tensor.requires_grad]
        if not followed:
            return run_checked(module, arguments, named)
        if verified["backward"] and not dual:
            output = run_checked(module, arguments, named)
            for leaf in pytree.tree_leaves(output):
                if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                    leaf.register_hook(refuse_second_derivative)
            return output
        shapes = []

        def call():
            outputs, shape = pytree.tree_flatten(run_checked(module, arguments, named))
            shapes.append(shape)
            return outputs

        outputs = Inference.apply(call, *followed)
        return pytree.tree_unflatten(list(outputs), shapes[0])

    @functools.wraps(program)
    def forward(self, *arguments, **named):
        if torch.compiler.is_compiling():
            torch._dynamo.graph_break(msg=not_in_a_graph)
            return torch.compiler.disable(enter)(self, arguments, named)
        return enter(self, arguments, named)

    kind.forward = forward
